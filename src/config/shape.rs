//! What a configuration file may hold, as tables: one row for each key, read by the loader (which keys
//! are known, which are required, what is the default) and by `mwl-proxy schema`. A key said once cannot
//! be accepted by one and unknown to the other.

/// A kind of object in the file.
#[derive(Debug)]
pub(super) struct Section {
    /// With its article, for messages: `an upstream`.
    pub(super) name: &'static str,
    /// What it is for.
    pub(super) doc: &'static str,
    /// Its keys, in the order of the documentation.
    pub(super) fields: &'static [Field],
}

/// One key of a [`Section`].
#[derive(Debug)]
pub(super) struct Field {
    /// The key.
    pub(super) key: &'static str,
    /// What its value is.
    pub(super) shape: Shape,
    /// Whether it must be there, or what stands for it where it is not.
    pub(super) absent: Absent,
    /// What it does, for editors and the reference.
    pub(super) doc: &'static str,
}

/// What an absent key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    /// An error.
    Refused,
    /// This value, as JSON text.
    Default(&'static str),
    /// There is none: the documentation of the key says what then holds.
    Nothing,
}

/// What a value is.
#[derive(Debug)]
pub(super) enum Shape {
    /// A string.
    Text,
    /// `true` or `false`.
    Boolean,
    /// A whole number within these bounds.
    Count(u64, u64),
    /// A number, a fraction perhaps, within these bounds.
    Number(f64, f64),
    /// An ISO 8601 duration.
    Duration,
    /// A number of bytes with its unit.
    Size,
    /// `address:port`.
    Address,
    /// `http://host:port` or `https://host:port`.
    Url,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Any JSON value.
    Any,
    /// Any object: its keys are its author's.
    Object,
    /// A piece of an MWL definition, held to the language's own rules when the route is compiled.
    Mwl(Piece),
    /// An object of known keys.
    Section(&'static Section),
    /// An array.
    List(&'static Self),
    /// An object of named values.
    Map(&'static Self),
    /// Any of these.
    Either(&'static [Self]),
    /// Null: the key alone says it.
    Null,
}

/// Which piece of MWL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A Flow object.
    Flow,
    /// A `call` object.
    Call,
    /// A list of middleware entries, with `{ stack: NAME }` items.
    Middleware,
    /// Any other field: its name says which.
    Other,
}

impl Section {
    /// The row of `key`.
    pub(super) fn field(&self, key: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.key == key)
    }
}

/// A key that must be there.
pub(super) const fn required(key: &'static str, shape: Shape, doc: &'static str) -> Field {
    Field { key, shape, absent: Absent::Refused, doc }
}

/// A key with a default, given as JSON text.
pub(super) const fn or(
    key: &'static str,
    shape: Shape,
    default: &'static str,
    doc: &'static str,
) -> Field {
    Field { key, shape, absent: Absent::Default(default), doc }
}

/// A key whose absence means something of its own.
pub(super) const fn optional(key: &'static str, shape: Shape, doc: &'static str) -> Field {
    Field { key, shape, absent: Absent::Nothing, doc }
}
