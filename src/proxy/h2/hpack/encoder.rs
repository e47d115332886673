//! Writes blocks of fields (RFC 7541 §6).

use super::known::{self, Policy};
use super::sent::{Found, Key, Sent};
use super::{INITIAL_TABLE_SIZE, huffman, integer};
use bytes::{BufMut, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

/// Cookies below this many octets may be guessed if a table keeps them (RFC 7541 §7.1.3).
const SHORT_COOKIE: usize = 20;

/// The kinds of a literal: it enters the table, it doesn't, and no table on the way may keep it (RFC 7541 §6.2).
const INDEXED: u8 = 0x40;
const OUTSIDE: u8 = 0;
const NEVER: u8 = 0x10;

/// Encodes the blocks of one direction of a connection. Its table has at most 4,096 octets, and no memory before its first
/// entry.
///
/// Each block begins with [`begin`](Self::begin); its fields follow, pseudo-headers first, in the order of the calls.
#[derive(Debug)]
pub(crate) struct Encoder {
    table: Sent,
    /// The smallest size that the table has had since the last block, if it has been changed.
    resized: Option<usize>,
}

impl Encoder {
    /// An encoder for a new connection.
    pub(crate) fn new() -> Self {
        Self { table: Sent::new(INITIAL_TABLE_SIZE), resized: None }
    }

    /// The other side's `SETTINGS_HEADER_TABLE_SIZE`, in octets. The next block begins with the change, which must be after
    /// the settings' acknowledgement (RFC 7541 §4.2).
    pub(crate) fn set_max_table_size(&mut self, size: usize) {
        let size = size.min(INITIAL_TABLE_SIZE);
        if size != self.table.max_size() {
            self.resized = Some(self.resized.map_or(size, |smallest| smallest.min(size)));
            self.table.resize(size);
        }
    }

    /// Begins a block.
    #[inline]
    pub(crate) fn begin(&mut self, out: &mut BytesMut) {
        if let Some(smallest) = self.resized.take() {
            let size = self.table.max_size();
            if smallest < size {
                integer::write(0x20, 0x1f, smallest, out);
            }
            integer::write(0x20, 0x1f, size, out);
        }
    }

    /// Writes `:method`.
    #[inline]
    pub(crate) fn method(&mut self, method: &Method, out: &mut BytesMut) {
        match *method {
            Method::GET => out.put_u8(0x80 | known::METHOD),
            Method::POST => out.put_u8(0x80 | (known::METHOD + 1)),
            _ => self.pseudo(known::METHOD, b":method", method.as_str().as_bytes(), out),
        }
    }

    /// Writes `:scheme`.
    #[inline]
    pub(crate) fn scheme(&mut self, scheme: &[u8], out: &mut BytesMut) {
        match scheme {
            b"http" => out.put_u8(0x80 | known::SCHEME),
            b"https" => out.put_u8(0x80 | (known::SCHEME + 1)),
            _ => self.pseudo(known::SCHEME, b":scheme", scheme, out),
        }
    }

    /// Writes `:authority`.
    #[inline]
    pub(crate) fn authority(&mut self, authority: &[u8], out: &mut BytesMut) {
        self.pseudo(known::AUTHORITY, b":authority", authority, out);
    }

    /// Writes `:path`.
    #[inline]
    pub(crate) fn path(&mut self, path: &[u8], out: &mut BytesMut) {
        match path {
            b"/" => out.put_u8(0x80 | known::PATH),
            b"/index.html" => out.put_u8(0x80 | (known::PATH + 1)),
            _ => self.pseudo(known::PATH, b":path", path, out),
        }
    }

    /// Writes `:protocol` (RFC 8441).
    #[cfg(test)]
    pub(crate) fn protocol(&mut self, protocol: &[u8], out: &mut BytesMut) {
        self.pseudo(0, b":protocol", protocol, out);
    }

    /// Writes `:status`.
    #[inline]
    pub(crate) fn status(&mut self, status: StatusCode, out: &mut BytesMut) {
        let place = match status.as_u16() {
            200 => 0,
            204 => 1,
            206 => 2,
            304 => 3,
            400 => 4,
            404 => 5,
            500 => 6,
            _ => return self.pseudo(known::STATUS, b":status", status.as_str().as_bytes(), out),
        };
        out.put_u8(0x80 | (known::STATUS + place));
    }

    /// Writes all regular fields of a head.
    pub(crate) fn fields(&mut self, fields: &HeaderMap, out: &mut BytesMut) {
        for (name, value) in fields {
            self.field(name, value, out);
        }
    }

    /// Writes a regular field.
    #[inline]
    pub(crate) fn field(&mut self, name: &HeaderName, value: &HeaderValue, out: &mut BytesMut) {
        let (index, policy) = known::of_name(name);
        let policy = match policy {
            _ if value.is_sensitive() => Policy::Never,
            _ if index == known::COOKIE && value.len() < SHORT_COOKIE => Policy::Never,
            policy => policy,
        };
        if index == known::ACCEPT_ENCODING && value == "gzip, deflate" && policy == Policy::Index {
            out.put_u8(0x80 | index);
            return;
        }
        let key = Key { index, name: name.as_str().as_bytes() };
        self.write(key, value.as_bytes(), policy, out);
    }

    /// Writes a pseudo-header that may enter the table.
    #[inline]
    fn pseudo(&mut self, index: u8, name: &[u8], value: &[u8], out: &mut BytesMut) {
        self.write(Key { index, name }, value, Policy::Index, out);
    }

    /// Writes a field that is not in the static table.
    #[inline]
    fn write(&mut self, key: Key<'_>, value: &[u8], policy: Policy, out: &mut BytesMut) {
        if policy == Policy::Index
            && let Some(place) = self.table.find_newest(key, value)
        {
            write_index(place, out);
        } else {
            self.write_other(key, value, policy, out);
        }
    }

    /// Writes a field that is not the newest of its name in the table.
    #[inline(never)]
    fn write_other(&mut self, key: Key<'_>, value: &[u8], policy: Policy, out: &mut BytesMut) {
        if policy != Policy::Index {
            let kind = if policy == Policy::Never { NEVER } else { OUTSIDE };
            let place = if key.index == 0 { self.table.find_name(key) } else { None };
            return write_literal(kind, key, place, value, out);
        }
        let (place, worth) = match self.table.find(key, value) {
            Found::Field(place) => return write_index(place, out),
            Found::Name { place, worth } => (Some(place), worth),
            Found::Nothing => (None, true),
        };
        if worth && self.table.admits(key, value) {
            write_literal(INDEXED, key, place, value, out);
            self.table.insert(key, value);
        } else {
            write_literal(OUTSIDE, key, place, value, out);
        }
    }
}

/// Writes an indexed field (RFC 7541 §6.1).
#[inline]
fn write_index(place: usize, out: &mut BytesMut) {
    integer::write(0x80, 0x7f, dynamic_index(place), out);
}

/// The index of a place in the dynamic table (RFC 7541 §2.3.3).
#[inline]
fn dynamic_index(place: usize) -> usize {
    known::COUNT + 1 + place
}

/// Writes a literal (RFC 7541 §6.2). Its name is an index if it is in the static table, or at `place` in the other.
///
/// What enters the table is written once, so Huffman's code pays off. Elsewhere it would cost both sides some 15
/// instructions for each octet, of which it saves a quarter.
fn write_literal(kind: u8, key: Key<'_>, place: Option<usize>, value: &[u8], out: &mut BytesMut) {
    let mask = if kind == INDEXED { 0x3f } else { 0x0f };
    let write_string = if kind == INDEXED { huffman::write_string } else { integer::write_string };
    match (key.index, place) {
        (0, None) => {
            out.put_u8(kind);
            write_string(key.name, out);
        }
        (0, Some(place)) => integer::write(kind, mask, dynamic_index(place), out),
        (index, _) => integer::write(kind, mask, index.into(), out),
    }
    write_string(value, out);
}

#[cfg(test)]
mod tests;
