//! A JSON text as a value: one table of nodes instead of an allocation for each array, object and string.
//!
//! A tree of shared nodes took 88 times the text's size for arrays of one element each. Here every node has 16
//! bytes, wherever it is, and the strings lie in one text. The elements of an array, and the members of an
//! object, are next to each other. Those members are sorted by name, so that one is found quickly. A part of
//! the table becomes a [`Value`] when it is read. Such a value keeps the whole table, which is freed at once
//! when nobody has a part of it any more. So an [`Account`] always knows what the values take.

mod parse;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::array::Array;
use super::{Map, Native, Value};

/// Says how much memory a parsed text may take.
pub trait Account: fmt::Debug + Send + Sync {
    /// The text takes `bytes` in all, from now on. If that is refused, all is as before.
    fn resize(&mut self, bytes: usize) -> bool;
}

/// An account without a limit.
impl Account for () {
    fn resize(&mut self, _bytes: usize) -> bool {
        true
    }
}

/// Why a text is not a value.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// It is not JSON.
    #[error("not JSON: {0}")]
    Invalid(serde_json::Error),
    /// Its account was refused.
    #[error("the parsed text takes more memory than there is")]
    Full,
}

/// A parsed text.
struct Table {
    nodes: Vec<Node>,
    text: String,
    /// Told when the table is freed, by being dropped.
    _account: Box<dyn Account>,
}

/// A value in the table. An array has a block of `len` nodes at `at`, an object one of `len` pairs of nodes.
#[derive(Clone, Copy, Debug)]
enum Node {
    Null,
    Bool(bool),
    Number(f64),
    Text { at: u32, len: u32 },
    Array { at: u32, len: u32 },
    Object { at: u32, len: u32 },
}

/// The elements of an array, or the members of an object, in a parsed text.
#[derive(Clone)]
pub struct Block {
    table: Arc<Table>,
    at: u32,
    len: u32,
}

/// A node of a table, to be written out.
struct Written<'a>(&'a Table, Node);

/// The room for a text's table, which was not filled yet. It may be filled on another thread: the allocator wants
/// memory back on the thread that has asked for it.
#[derive(Debug)]
pub struct Parsing(parse::Builder);

impl Value {
    /// The value of a JSON text of at most 128 levels. What it takes is charged to `account` until the last
    /// part of it is dropped. If a member is repeated, the last one wins.
    ///
    /// # Errors
    /// If it is not JSON, or if `account` refuses.
    pub fn parse(json: &[u8], account: impl Account + 'static) -> Result<Self, ParseError> {
        Parsing::begin(json, account)?.finish(json)
    }
}

impl Parsing {
    /// Makes the room for a JSON text. This takes a small part of the time.
    ///
    /// # Errors
    /// If `account` refuses.
    pub fn begin(json: &[u8], account: impl Account + 'static) -> Result<Self, ParseError> {
        parse::Builder::of(json, Box::new(account)).map(Self)
    }

    /// The value of the same text.
    ///
    /// # Errors
    /// If it is not JSON, or if the account refuses.
    pub fn finish(self, json: &[u8]) -> Result<Value, ParseError> {
        let (table, root) = self.0.table(json)?;
        Ok(Table::value(&Arc::new(table), root))
    }
}

impl Table {
    fn value(table: &Arc<Self>, node: Node) -> Value {
        let block = |at, len| Block { table: Arc::clone(table), at, len };
        match node {
            Node::Null => Value::Null,
            Node::Bool(bool) => Value::Bool(bool),
            Node::Number(number) => Value::Number(number),
            Node::Text { at, len } => Value::from(table.text(at, len)),
            Node::Array { at, len } => Value::Array(Array::Parsed(block(at, len))),
            Node::Object { at, len } => Value::Native(Arc::new(block(at, len))),
        }
    }

    fn text(&self, at: u32, len: u32) -> &str {
        let (at, len) = (at as usize, len as usize);
        self.text.get(at..at.saturating_add(len)).unwrap_or_default()
    }

    fn elements(&self, at: u32, len: u32) -> &[Node] {
        let (at, len) = (at as usize, len as usize);
        self.nodes.get(at..at.saturating_add(len)).unwrap_or_default()
    }

    fn members(&self, at: u32, len: u32) -> &[[Node; 2]] {
        self.elements(at, len.saturating_mul(2)).as_chunks().0
    }

    /// The name of a member.
    fn name(&self, [name, _]: &[Node; 2]) -> &str {
        match name {
            Node::Text { at, len } => self.text(*at, *len),
            _ => "",
        }
    }
}

impl Block {
    pub(super) const fn len(&self) -> usize {
        self.len as usize
    }

    pub(super) fn element(&self, index: usize) -> Option<Value> {
        let node = self.table.elements(self.at, self.len).get(index)?;
        Some(Table::value(&self.table, *node))
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.table, &other.table) && (self.at, self.len) == (other.at, other.len)
    }

    /// Writes the elements of an array.
    pub(super) fn serialize_array<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let node = Node::Array { at: self.at, len: self.len };
        Written(&self.table, node).serialize(serializer)
    }

    /// Writes the members of an object.
    pub(super) fn serialize_object<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let node = Node::Object { at: self.at, len: self.len };
        Written(&self.table, node).serialize(serializer)
    }
}

/// An object of a parsed text.
impl Native for Block {
    fn member(&self, name: &str) -> Option<Value> {
        let members = self.table.members(self.at, self.len);
        let found = members.binary_search_by(|member| self.table.name(member).cmp(name));
        let [_, value] = members.get(found.ok()?)?;
        Some(Table::value(&self.table, *value))
    }

    fn to_map(&self) -> Map {
        let members = self.table.members(self.at, self.len).iter();
        let value = |node: &Node| Table::value(&self.table, *node);
        members.map(|member| (self.table.name(member).into(), value(&member[1]))).collect()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(table, node) = *self;
        match node {
            Node::Null => serializer.serialize_unit(),
            Node::Bool(bool) => serializer.serialize_bool(bool),
            Node::Number(number) => Value::Number(number).serialize(serializer),
            Node::Text { at, len } => serializer.serialize_str(table.text(at, len)),
            Node::Array { at, len } => {
                let elements = table.elements(at, len).iter();
                serializer.collect_seq(elements.map(|element| Written(table, *element)))
            }
            Node::Object { at, len } => {
                let members = table.members(at, len).iter();
                let written = |member| (table.name(member), Written(table, member[1]));
                serializer.collect_map(members.map(written))
            }
        }
    }
}

/// The text alone: a table may hold a million nodes.
impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("at", &self.at)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
