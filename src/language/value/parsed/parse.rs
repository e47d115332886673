//! Makes a table of a text.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{Account, Node, ParseError, Table};

/// The message behind [`ParseError::Full`]; no user sees it.
const FULL: &str = "full";

/// A table that is being filled.
#[derive(Debug)]
pub(super) struct Builder {
    nodes: Vec<Node>,
    /// The nodes of arrays and objects whose end was not read yet, outermost first.
    open: Vec<Node>,
    text: Vec<u8>,
    account: Box<dyn Account>,
    /// Whether the account has refused.
    full: bool,
}

/// How much a vector takes.
const fn taken<T>(items: &Vec<T>) -> usize {
    items.capacity() * size_of::<T>()
}

/// Makes room for `more` items, if `account` allows. `others`: what everything else takes.
fn reserve<T>(items: &mut Vec<T>, more: usize, others: usize, account: &mut dyn Account) -> bool {
    let needed = items.len().saturating_add(more);
    if needed <= items.capacity() {
        return true;
    }
    let wanted = needed.max(items.capacity() + items.capacity() / 2);
    // While it moves, the old items take room beside the new ones.
    let moving = taken(items).saturating_add(wanted.saturating_mul(size_of::<T>()));
    if !account.resize(others.saturating_add(moving)) {
        return false;
    }
    items.reserve_exact(wanted - items.len());
    account.resize(others + taken(items))
}

/// How many nodes and how many bytes of strings a text has at most. A valid one has hardly fewer.
fn measure(json: &[u8]) -> (usize, usize) {
    let (mut nodes, mut text) = (1_usize, 0);
    let (mut quoted, mut escaped) = (false, false);
    let mut before = b' ';
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            b',' | b':' | b'[' | b'{' if !quoted => nodes += 1,
            // There was nothing between the two.
            b']' | b'}' if !quoted && matches!(before, b'[' | b'{') => {
                nodes = nodes.saturating_sub(1);
            }
            _ => {}
        }
        before = *byte;
        text += usize::from(quoted);
    }
    (nodes, text)
}

impl Builder {
    /// A builder with room for the table of `json`, if the account allows. A table that grew as it went would leave
    /// twice its size behind for the allocator.
    pub(super) fn of(json: &[u8], mut account: Box<dyn Account>) -> Result<Self, ParseError> {
        let (nodes, text) = measure(json);
        let room = nodes.saturating_mul(size_of::<Node>()).saturating_add(text);
        if !account.resize(room) {
            return Err(ParseError::Full);
        }
        Ok(Self {
            nodes: Vec::with_capacity(nodes),
            open: Vec::new(),
            text: Vec::with_capacity(text),
            account,
            full: false,
        })
    }

    /// The table of `json`, and its root.
    pub(super) fn table(mut self, json: &[u8]) -> Result<(Table, Node), ParseError> {
        let mut reader = serde_json::Deserializer::from_slice(json);
        let root = reader.deserialize_any(&mut self).and_then(|root| reader.end().map(|()| root));
        match root {
            Ok(root) => self.finish().map(|table| (table, root)),
            Err(_) if self.full => Err(ParseError::Full),
            Err(error) => Err(ParseError::Invalid(error)),
        }
    }

    fn admitted<E: Error>(&mut self, admitted: bool) -> Result<(), E> {
        self.full |= !admitted;
        if admitted { Ok(()) } else { Err(E::custom(FULL)) }
    }

    /// Adds a node to the innermost array or object.
    fn push<E: Error>(&mut self, node: Node) -> Result<(), E> {
        let others = taken(&self.nodes) + taken(&self.text);
        let admitted = reserve(&mut self.open, 1, others, &mut *self.account);
        self.admitted(admitted)?;
        self.open.push(node);
        Ok(())
    }

    /// Puts the nodes from `start` on, which are complete, into the table. Returns where they are.
    fn close<E: Error>(&mut self, start: usize) -> Result<u32, E> {
        let others = taken(&self.open) + taken(&self.text);
        let more = self.open.len() - start;
        let admitted = reserve(&mut self.nodes, more, others, &mut *self.account);
        self.admitted(admitted)?;
        let at = self.index(self.nodes.len())?;
        self.nodes.extend(self.open.drain(start..));
        Ok(at)
    }

    fn text<E: Error>(&mut self, text: &str) -> Result<Node, E> {
        let others = taken(&self.nodes) + taken(&self.open);
        let admitted = reserve(&mut self.text, text.len(), others, &mut *self.account);
        self.admitted(admitted)?;
        let node = Node::Text { at: self.index(self.text.len())?, len: self.index(text.len())? };
        self.text.extend_from_slice(text.as_bytes());
        Ok(node)
    }

    /// A position in the table. A text of more nodes than fit is as good as one for which there is no memory.
    fn index<E: Error>(&mut self, index: usize) -> Result<u32, E> {
        let index = u32::try_from(index).ok();
        self.admitted(index.is_some())?;
        Ok(index.unwrap_or_default())
    }

    fn name(&self, node: Node) -> &[u8] {
        match node {
            Node::Text { at, len } => {
                let (at, len) = (at as usize, len as usize);
                self.text.get(at..at.saturating_add(len)).unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// Sorts the members from `start` on by name. Of those with one name, the last stays.
    fn sort(&mut self, start: usize) {
        let mut members = self.open.split_off(start);
        let (pairs, _) = members.as_chunks_mut::<2>();
        // Mostly few, and often in order.
        pairs.sort_by(|[a, _], [b, _]| self.name(*a).cmp(self.name(*b)));
        for pair in pairs {
            let known = self.open.len() > start;
            let last = self.open.len().saturating_sub(2);
            let same = |last: &Node| self.name(*last) == self.name(pair[0]);
            if known && self.open.get(last).is_some_and(same) {
                self.open.truncate(last);
            }
            self.open.extend_from_slice(pair);
        }
    }

    fn finish(mut self) -> Result<Table, ParseError> {
        // Mostly it has the right size already.
        if self.nodes.len() < self.nodes.capacity() / 8 * 7 {
            self.nodes.shrink_to_fit();
        }
        if self.text.len() < self.text.capacity() / 8 * 7 {
            self.text.shrink_to_fit();
        }
        // A string of serde_json's is always UTF-8.
        let text = String::from_utf8(self.text).map_err(|_| ParseError::Full)?;
        let mut account = self.account;
        if !account.resize(taken(&self.nodes) + text.capacity()) {
            return Err(ParseError::Full);
        }
        Ok(Table { nodes: self.nodes, text, _account: account })
    }
}

impl<'de> DeserializeSeed<'de> for &mut Builder {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

#[expect(clippy::cast_precision_loss, reason = "the model's numbers are doubles")]
impl<'de> Visitor<'de> for &mut Builder {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E: Error>(self, bool: bool) -> Result<Node, E> {
        Ok(Node::Bool(bool))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Number(number as f64))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Number(number as f64))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Node, E> {
        Ok(Node::Number(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Node, E> {
        self.text(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Node, A::Error> {
        let start = self.open.len();
        while let Some(element) = elements.next_element_seed(&mut *self)? {
            self.push(element)?;
        }
        let len = self.open.len() - start;
        Ok(Node::Array { len: self.index(len)?, at: self.close(start)? })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Node, A::Error> {
        let start = self.open.len();
        while let Some(name) = members.next_key_seed(&mut *self)? {
            self.push(name)?;
            let value = members.next_value_seed(&mut *self)?;
            self.push(value)?;
        }
        self.sort(start);
        let len = (self.open.len() - start) / 2;
        Ok(Node::Object { len: self.index(len)?, at: self.close(start)? })
    }
}
