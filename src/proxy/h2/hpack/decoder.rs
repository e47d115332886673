//! Reads blocks of fields (RFC 7541 §3.2 and §6).

use super::huffman;
use super::integer::Reader;
use super::known::{self, Entry};
use super::{CompressionError, ENTRY_OVERHEAD, Field, INITIAL_TABLE_SIZE, Malformed, Name};
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use std::collections::VecDeque;

/// Decodes the blocks of one direction of a connection. It allocates nothing before its table has an entry.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// The dynamic table, the newest entry first.
    entries: VecDeque<Entry>,
    /// What the entries count together, in octets.
    size: usize,
    /// What they may count. The other side chooses it.
    max_size: usize,
    /// The most that it may choose.
    limit: usize,
}

impl Decoder {
    /// `max_table_size` is the `SETTINGS_HEADER_TABLE_SIZE` that we sent, in octets. Less than 4,096 counts as this, because
    /// the other side may use so much until it has read our settings.
    pub(crate) fn new(max_table_size: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            size: 0,
            max_size: INITIAL_TABLE_SIZE,
            limit: max_table_size.max(INITIAL_TABLE_SIZE),
        }
    }

    /// Decodes a whole block: a `HEADERS` frame's fragment with those of its `CONTINUATION` frames. `seen` gets each field,
    /// or why the message may not have it. Besides the table, it allocates at most 8/5 of the
    /// block's length for values, and as much again while it reads one.
    pub(crate) fn decode(
        &mut self,
        block: &Bytes,
        mut seen: impl FnMut(Result<Field, Malformed>),
    ) -> Result<(), CompressionError> {
        let mut block = Block { bytes: block, reader: Reader::new(block) };
        let mut at_head = true;
        while let Some(first) = block.reader.octet() {
            if first >= 0x80 {
                let index = block.reader.integer(first, 0x7f)?;
                seen(self.entry(index)?.field());
            } else if first >= 0x40 {
                let entry = self.new_entry(first, &mut block)?;
                seen(entry.field());
                self.insert(entry);
            } else if first >= 0x20 {
                let size = block.reader.integer(first, 0x1f)?;
                if !at_head || size > self.limit {
                    return Err(CompressionError);
                }
                self.resize(size);
                continue;
            } else {
                seen(self.literal(first, &mut block)?);
            }
            at_head = false;
        }
        Ok(())
    }

    /// The entry of an index (RFC 7541 §2.3.3).
    #[inline]
    fn entry(&self, index: usize) -> Result<&Entry, CompressionError> {
        let index = index.checked_sub(1).ok_or(CompressionError)?;
        known::TABLE
            .get(index)
            .or_else(|| self.entries.get(index - known::COUNT))
            .ok_or(CompressionError)
    }

    /// A literal field that enters the table (RFC 7541 §6.2.1).
    fn new_entry(&self, first: u8, block: &mut Block<'_>) -> Result<Entry, CompressionError> {
        let (name, name_length) = self.name(first, 0x3f, block)?;
        let (value, value_length) = block.value_to_keep()?;
        let size = name_length.saturating_add(value_length).saturating_add(ENTRY_OVERHEAD);
        Ok(Entry { name, value, name_length, size })
    }

    /// A literal field that doesn't (RFC 7541 §6.2.2 and §6.2.3).
    fn literal(
        &self,
        first: u8,
        block: &mut Block<'_>,
    ) -> Result<Result<Field, Malformed>, CompressionError> {
        let (name, _) = self.name(first, 0x0f, block)?;
        let value = block.value()?;
        Ok(name.and_then(|name| {
            let mut value = value.ok_or(Malformed::BadValue)?;
            value.set_sensitive(first >= 0x10);
            Ok(Field { name, value })
        }))
    }

    /// A literal field's name, which an entry has or the block itself, and how long it is.
    fn name(
        &self,
        first: u8,
        mask: u8,
        block: &mut Block<'_>,
    ) -> Result<(Result<Name, Malformed>, usize), CompressionError> {
        let index = block.reader.integer(first, mask)?;
        if index == 0 {
            return block.name();
        }
        let entry = self.entry(index)?;
        Ok((entry.name.clone(), entry.name_length))
    }

    /// Makes room for a new entry and adds it. One that is larger than the table empties it (RFC 7541 §4.4).
    fn insert(&mut self, entry: Entry) {
        self.evict_to(self.max_size.saturating_sub(entry.size));
        if entry.size <= self.max_size {
            self.size += entry.size;
            self.entries.push_front(entry);
        }
    }

    /// Changes the most that the entries may count (RFC 7541 §4.3).
    fn resize(&mut self, max_size: usize) {
        self.max_size = max_size;
        self.evict_to(max_size);
        if max_size == 0 {
            self.entries = VecDeque::new();
        }
    }

    /// Removes the oldest entries until all count at most `size`.
    fn evict_to(&mut self, size: usize) {
        while self.size > size {
            let Some(oldest) = self.entries.pop_back() else { break };
            self.size -= oldest.size;
        }
    }
}

/// A block that is being read.
#[derive(Debug)]
struct Block<'a> {
    bytes: &'a Bytes,
    reader: Reader<'a>,
}

impl Block<'_> {
    /// A name and its length.
    fn name(&mut self) -> Result<(Result<Name, Malformed>, usize), CompressionError> {
        let (text, coded) = self.reader.string()?;
        let parse = |text: &[u8]| (parse_name(text), text.len());
        if coded { huffman::decode(text, parse) } else { Ok(parse(text)) }
    }

    /// A value for this message, and not for the table. It is a slice of the block if it is written as it is.
    fn value(&mut self) -> Result<Option<HeaderValue>, CompressionError> {
        let (text, coded) = self.reader.string()?;
        if coded {
            return huffman::decode(text, |text| HeaderValue::from_bytes(text).ok());
        }
        let end = self.bytes.len() - self.reader.remaining();
        let value = self.bytes.slice(end - text.len()..end);
        Ok(HeaderValue::from_maybe_shared(value).ok())
    }

    /// A value for the table, with memory of its own, and how long it is.
    fn value_to_keep(&mut self) -> Result<(Option<HeaderValue>, usize), CompressionError> {
        let (text, coded) = self.reader.string()?;
        let copy = |text: &[u8]| (HeaderValue::from_bytes(text).ok(), text.len());
        if coded { huffman::decode(text, copy) } else { Ok(copy(text)) }
    }
}

/// The name that `text` is, or why it is none (RFC 9113 §8.2.1 and §8.3).
fn parse_name(text: &[u8]) -> Result<Name, Malformed> {
    match text {
        [b':', ..] => match text {
            b":authority" => Ok(Name::Authority),
            b":method" => Ok(Name::Method),
            b":path" => Ok(Name::Path),
            b":protocol" => Ok(Name::Protocol),
            b":scheme" => Ok(Name::Scheme),
            b":status" => Ok(Name::Status),
            _ => Err(Malformed::UnknownPseudo),
        },
        _ if text.iter().any(u8::is_ascii_uppercase) => Err(Malformed::UppercaseOrBadName),
        _ => {
            HeaderName::from_bytes(text).map(Name::Field).map_err(|_| Malformed::UppercaseOrBadName)
        }
    }
}

#[cfg(test)]
mod tests;
