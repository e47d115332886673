//! What a configuration file may contain, as tables with one row per key. The loader reads them (known
//! keys, required keys, defaults) and so does `mwl-proxy schema`, so both always agree.

/// A kind of object in the file.
#[derive(Debug)]
pub(super) struct Section {
    /// Its name with the article, for messages: `an upstream`.
    pub(super) name: &'static str,
    /// Its purpose.
    pub(super) doc: &'static str,
    /// Its keys, in the order of the documentation.
    pub(super) fields: &'static [Field],
}

/// One key of a [`Section`].
#[derive(Debug)]
pub(super) struct Field {
    /// The key.
    pub(super) key: &'static str,
    /// The type of its value.
    pub(super) shape: Shape,
    /// Whether it is required, or what holds when it is absent.
    pub(super) absent: Absent,
    /// What it does, for editors and the reference.
    pub(super) doc: &'static str,
}

/// What an absent key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    /// It is an error.
    Required,
    /// The key has this value, as JSON text.
    Default(&'static str),
    /// The key has no value. Its documentation says what happens then.
    Nothing,
}

/// The type of a value.
#[derive(Debug)]
pub(super) enum Shape {
    /// A string.
    Text,
    /// `true` or `false`.
    Boolean,
    /// A whole number within these bounds.
    Count(u64, u64),
    /// A number within these bounds; it may be a fraction.
    Number(f64, f64),
    /// An ISO 8601 duration.
    Duration,
    /// A number of bytes with its unit.
    Size,
    /// A path, which begins with a slash.
    Path,
    /// `address:port`.
    Address,
    /// `http://host:port` or `https://host:port`.
    Url,
    /// The same, or `unix:/path`.
    Endpoint,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Any JSON value.
    Any,
    /// Any object: the author chooses its keys.
    Object,
    /// Part of an MWL definition. The language checks it when the route is compiled.
    Mwl(Piece),
    /// An object of known keys.
    Section(&'static Section),
    /// An array.
    List(&'static Self),
    /// An object of named values.
    Map(&'static Self),
    /// Any of these.
    Either(&'static [Self]),
    /// Null: the key alone has the meaning.
    Null,
}

/// A part of MWL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A Flow object.
    Flow,
    /// A `call` object.
    Call,
    /// A list of middleware entries, with `{ stack: NAME }` items.
    Middleware,
    /// Variables and their values.
    Assign,
    /// A list of `catch` clauses.
    Catch,
    /// Steps by their names.
    Steps,
    /// Flows by their names.
    Flows,
    /// A JSON Schema of arguments.
    Parameters,
}

impl Section {
    /// The row of `key`.
    pub(super) fn field(&self, key: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.key == key)
    }

    /// What to write for `key`, which this section does not have, if it belongs into one of its values.
    pub(super) fn elsewhere(&self, key: &str) -> Option<String> {
        let policy = ["retry", "retries", "timeout", "timeouts"].contains(&key);
        let mut found = self.fields.iter().filter_map(|field| match &field.shape {
            Shape::Section(inner) if inner.field(key).is_some() => {
                Some(format!("it is a key of `{0}`: write `{0}: {{ {key}: … }}`", field.key))
            }
            Shape::Mwl(Piece::Middleware) if policy => Some(
                "a stack does that: `middleware: [{ stack: mwl-proxy/standard }]`, or entries of your own".to_owned(),
            ),
            _ => None,
        });
        // If it has several homes, nobody knows which one is meant.
        found.next().filter(|_| found.next().is_none())
    }
}

/// A required key.
pub(super) const fn required(key: &'static str, shape: Shape, doc: &'static str) -> Field {
    Field { key, shape, absent: Absent::Required, doc }
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

/// A key that may be absent, with a meaning of its own.
pub(super) const fn optional(key: &'static str, shape: Shape, doc: &'static str) -> Field {
    Field { key, shape, absent: Absent::Nothing, doc }
}
