//! Huffman's code of strings (RFC 7541 §5.2 and Appendix B).
//!
//! The code is canonical: the lengths of its words say all of it. The tables are made from them when the crate is compiled.

use super::{CompressionError, integer};
use bytes::BytesMut;

/// How many bits each octet takes, and at last the end of a string (RFC 7541, Appendix B).
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The octets, and the end of a string.
const SYMBOLS: usize = 257;

/// The fewest and the most bits of a word.
const SHORTEST: u8 = 5;
const LONGEST: u8 = 30;

/// How many bits a look into [`FAST`] decides. Words of ordinary text have 5 to 8, so it often finds two.
const WIDTH: u8 = 11;

/// A word of the code.
#[derive(Debug, Clone, Copy)]
struct Word {
    bits: u32,
    length: u8,
}

/// The words of all symbols.
static WORDS: [Word; SYMBOLS] = words();

/// What the next bits mean, as `[first octet, second octet, how many bits, how many octets]`. There are none if the word
/// is longer.
static FAST: [[u8; 4]; 1 << WIDTH] = fast();

/// The symbols in the order of their words, and by length, the first of that length: its word, and its place among them.
static SORTED: [u16; SYMBOLS] = sorted().0;
static FIRST_OF_LENGTH: [(u32, u16); LONGEST as usize + 2] = sorted().1;

/// Canonical words: in the order of length, then symbol, each the next number.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn words() -> [Word; SYMBOLS] {
    let mut words = [Word { bits: 0, length: 0 }; SYMBOLS];
    let mut bits = 0;
    let mut length = SHORTEST;
    while length <= LONGEST {
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] == length {
                words[symbol] = Word { bits, length };
                bits += 1;
            }
            symbol += 1;
        }
        bits <<= 1;
        length += 1;
    }
    words
}

/// See [`SORTED`] and [`FIRST_OF_LENGTH`].
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
#[expect(clippy::cast_possible_truncation, reason = "257 symbols")]
const fn sorted() -> ([u16; SYMBOLS], [(u32, u16); LONGEST as usize + 2]) {
    let mut sorted = [0; SYMBOLS];
    let mut first = [(0, 0); LONGEST as usize + 2];
    let (mut bits, mut place, mut length) = (0, 0, 0);
    while length < first.len() {
        first[length] = (bits, place as u16);
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                sorted[place] = symbol as u16;
                place += 1;
                bits += 1;
            }
            symbol += 1;
        }
        bits <<= 1;
        length += 1;
    }
    (sorted, first)
}

/// See [`FAST`].
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
#[expect(clippy::cast_possible_truncation, reason = "an octet")]
const fn fast() -> [[u8; 4]; 1 << WIDTH] {
    let words = words();
    let mut fast = [[0; 4]; 1 << WIDTH];
    let mut symbol = 0;
    while symbol < SYMBOLS - 1 {
        let Word { bits, length } = words[symbol];
        if length <= WIDTH {
            let from = (bits as usize) << (WIDTH - length);
            let mut i = 0;
            while i < 1 << (WIDTH - length) {
                fast[from + i] = [symbol as u8, 0, length, 1];
                i += 1;
            }
        }
        symbol += 1;
    }
    let single = fast;
    let mut i = 0;
    while i < fast.len() {
        let length = single[i][2];
        let [second, _, further, _] = single[(i << length) & ((1 << WIDTH) - 1)];
        if length != 0 && further != 0 && length + further <= WIDTH {
            fast[i] = [single[i][0], second, length + further, 2];
        }
        i += 1;
    }
    fast
}

/// How many octets `length` octets of code may become, at most, and two more that are written and mean nothing.
const fn room_for(length: usize) -> usize {
    length.saturating_mul(8) / SHORTEST as usize + 2
}

/// What short strings are decoded into, without an allocation.
const SHORT_ROOM: usize = room_for(128);

/// Bits that wait to be decoded: the highest `count` of `bits`. The others are zero.
struct Bits {
    bits: u64,
    count: u8,
}

impl Bits {
    /// Adds 32 bits. At most as many wait.
    fn add_word(&mut self, octets: [u8; 4]) {
        self.bits |= u64::from(u32::from_be_bytes(octets)) << (32 - self.count);
        self.count += 32;
    }

    /// Adds 8 bits. At most 56 wait.
    fn add_octet(&mut self, octet: u8) {
        self.bits |= u64::from(octet) << (56 - self.count);
        self.count += 8;
    }

    /// Takes bits that have been decoded.
    fn skip(&mut self, count: u8) {
        self.bits <<= count;
        self.count -= count;
    }
}

/// Decodes `code` and hands the text to `then`.
pub(super) fn decode<T>(code: &[u8], then: impl FnOnce(&[u8]) -> T) -> Result<T, CompressionError> {
    let needed = room_for(code.len());
    if needed <= SHORT_ROOM {
        then_text(code, &mut [0; SHORT_ROOM], then)
    } else {
        then_text(code, &mut vec![0; needed], then)
    }
}

/// Decodes `code` into `room` and hands the text to `then`.
#[inline]
fn then_text<T>(
    code: &[u8],
    room: &mut [u8],
    then: impl FnOnce(&[u8]) -> T,
) -> Result<T, CompressionError> {
    let length = decode_into(code, room)?;
    Ok(then(room.get(..length).ok_or(CompressionError)?))
}

/// Writes what `code` means to the beginning of `room`, which has [`room_for`] it. Returns how many octets it wrote.
fn decode_into(mut code: &[u8], room: &mut [u8]) -> Result<usize, CompressionError> {
    let mut written = 0;
    let mut held = Bits { bits: 0, count: 0 };
    while let Some((&octets, rest)) = code.split_first_chunk() {
        code = rest;
        held.add_word(octets);
        // More bits than the longest word has.
        while held.count > 32 {
            let [first, second, length, octets] = look(held.bits)?;
            if octets == 0 {
                let (symbol, length) = look_long(held.bits)?;
                put(room, &mut written, [symbol, 0], 1)?;
                held.skip(length);
            } else {
                put(room, &mut written, [first, second], octets)?;
                held.skip(length);
            }
        }
    }
    for &octet in code {
        held.add_octet(octet);
    }
    // The end of a string is all ones, and its beginning fills up the last octet.
    let mut bits = held.bits | (u64::MAX >> held.count);
    let mut count = held.count;
    while bits != u64::MAX {
        let [first, second, mut length, octets] = look(bits)?;
        if octets == 0 {
            let symbol;
            (symbol, length) = look_long(bits)?;
            put(room, &mut written, [symbol, 0], 1)?;
        } else {
            put(room, &mut written, [first, second], octets)?;
        }
        // No word is all ones, so one that ends in the filling began before: the filling is not what it has to be.
        count = count.checked_sub(length).ok_or(CompressionError)?;
        bits = !(!bits << length);
    }
    if count < 8 { Ok(written) } else { Err(CompressionError) }
}

/// What the highest [`WIDTH`] bits mean.
#[inline]
fn look(bits: u64) -> Result<[u8; 4], CompressionError> {
    FAST.get((bits >> (64 - WIDTH)) as usize).copied().ok_or(CompressionError)
}

/// The symbol whose word is longer than [`WIDTH`], and how long it is. The end of a string is an error.
#[cold]
#[expect(clippy::cast_possible_truncation, reason = "at most 30 bits")]
fn look_long(bits: u64) -> Result<(u8, u8), CompressionError> {
    for length in WIDTH + 1..=LONGEST {
        let word = (bits >> (64 - length)) as u32;
        let (first, place) = *FIRST_OF_LENGTH.get(usize::from(length)).ok_or(CompressionError)?;
        let (_, end) = *FIRST_OF_LENGTH.get(usize::from(length) + 1).ok_or(CompressionError)?;
        // Words of another length are larger, and so are those before them.
        let at = word.saturating_sub(first) + u32::from(place);
        if at < u32::from(end) {
            let symbol = SORTED.get(at as usize).ok_or(CompressionError)?;
            return Ok((u8::try_from(*symbol).map_err(|_| CompressionError)?, length));
        }
    }
    Err(CompressionError)
}

/// Writes two octets, of which `count` mean something.
#[inline]
fn put(
    room: &mut [u8],
    written: &mut usize,
    octets: [u8; 2],
    count: u8,
) -> Result<(), CompressionError> {
    let place = room.get_mut(*written..*written + 2).ok_or(CompressionError)?;
    place.copy_from_slice(&octets);
    *written += usize::from(count);
    Ok(())
}

/// Writes a string (RFC 7541 §5.2) that the other side keeps, in Huffman's code if that is shorter.
pub(super) fn write_string(text: &[u8], out: &mut BytesMut) {
    let length = encoded_length(text);
    if length < text.len() {
        integer::write(0x80, 0x7f, length, out);
        encode(text, length, out);
    } else {
        integer::write_string(text, out);
    }
}

/// How many octets of code `text` becomes.
fn encoded_length(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|&octet| usize::from(word(octet).length)).sum();
    bits.div_ceil(8)
}

/// Appends the `length` octets of code that `text` becomes.
fn encode(text: &[u8], length: usize, out: &mut BytesMut) {
    let start = out.len();
    out.resize(start + length, 0);
    let mut words = text.iter().map(|&octet| word(octet));
    let (mut bits, mut count) = (0_u64, 0);
    // The next 32 bits, filled up with ones (RFC 7541 §5.2).
    let mut next = || {
        while count < 32 {
            let Some(word) = words.next() else {
                bits = (bits << 32 | u64::from(u32::MAX)) >> count;
                count = 32;
                break;
            };
            bits = bits << word.length | u64::from(word.bits);
            count += word.length;
        }
        count -= 32;
        #[expect(clippy::cast_possible_truncation, reason = "what is above has been written")]
        ((bits >> count) as u32).to_be_bytes()
    };
    let (places, rest) = out.get_mut(start..).unwrap_or_default().as_chunks_mut::<4>();
    for place in places {
        *place = next();
    }
    if let Some(last) = next().get(..rest.len()) {
        rest.copy_from_slice(last);
    }
}

/// The word of an octet.
#[inline]
fn word(octet: u8) -> Word {
    WORDS.get(usize::from(octet)).copied().unwrap_or(Word { bits: 0, length: 0 })
}

#[cfg(test)]
mod tests;
