//! Finds the end of a message's body, and the bytes that belong to the body (RFC 9112 §6, §7.1).
//!
//! This code is pure: bytes go in, and pieces of the body come out, which share the bytes' memory. It does not
//! read from the connection. So a property test can check that the body is the same however the bytes are cut.

use bytes::{Buf, Bytes};
use http::header::HeaderMap;

use super::error::Malformed;
use super::fields::{self, FieldRules};

/// How many bytes the chunk extensions of a body may take in total, with the zeros and spaces around chunk
/// sizes. Nobody here reads them.
pub(super) const EXTENSIONS: usize = 16 * 1024;

/// The framing of a body, and how far it was read.
#[derive(Debug)]
pub(crate) enum Decoder {
    /// This many bytes are left; at 0 the body has ended.
    Length(u64),
    /// The body is chunked.
    Chunked(Box<Chunks>),
    /// The body goes on until the connection closes.
    UntilClose,
    /// The body is malformed, so nobody knows where it ends. Nothing after the mistake is ever read.
    Failed(Malformed),
}

/// A chunked body.
#[derive(Debug)]
pub(crate) struct Chunks {
    /// How the trailers are read.
    rules: FieldRules,
    at: State,
    /// The chunk's size as far as it was read; then how much of it is left.
    left: u64,
    /// How many bytes without meaning have arrived.
    extensions: usize,
    /// The trailer section, as far as it has arrived.
    trailers: Vec<u8>,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The first digit of a size.
    #[default]
    Start,
    /// A further digit, or the end of the size.
    Size,
    /// Spaces that some senders put after the size.
    Blank,
    Extension,
    /// The line feed after a size.
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// The start of a trailer field, or the end of all of them.
    Field,
    /// The rest of a trailer field.
    Rest,
    /// Its end.
    RestLf,
    EndLf,
}

/// The result of decoding.
#[derive(Debug)]
pub(crate) enum Decoded {
    /// All bytes were used, and the body goes on.
    More,
    /// The next piece of the body.
    Data(Bytes),
    /// The body's trailers. They are its end.
    Trailers(HeaderMap),
    /// The end of the body.
    End,
}

impl Decoder {
    /// No body, or no more of it.
    pub(crate) const NONE: Self = Self::Length(0);

    /// A chunked body, whose trailers are read by `rules`.
    pub(crate) fn chunked(rules: FieldRules) -> Self {
        let at = State::default();
        Self::Chunked(Box::new(Chunks { rules, at, left: 0, extensions: 0, trailers: Vec::new() }))
    }

    /// Whether all of the body was read.
    pub(crate) const fn is_done(&self) -> bool {
        matches!(self, Self::Length(0))
    }

    /// How many bytes are left, if that is known.
    pub(crate) const fn left(&self) -> Option<u64> {
        match self {
            Self::Length(left) => Some(*left),
            Self::Chunked(_) | Self::UntilClose | Self::Failed(_) => None,
        }
    }

    /// Skips bytes of a body with a length that were moved without being decoded.
    pub(crate) const fn pass(&mut self, size: u64) {
        if let Self::Length(left) = self {
            *left = left.saturating_sub(size);
        }
    }

    /// Takes the next piece from the front of `bytes`. Bytes after the body stay there. A decoder that has
    /// failed keeps failing.
    pub(crate) fn decode(&mut self, bytes: &mut Bytes) -> Result<Decoded, Malformed> {
        let decoded = match self {
            Self::Length(0) => return Ok(Decoded::End),
            Self::Length(left) => return Ok(take(left, bytes)),
            Self::UntilClose if bytes.is_empty() => return Ok(Decoded::More),
            Self::UntilClose => return Ok(Decoded::Data(std::mem::take(bytes))),
            Self::Failed(malformed) => return Err(*malformed),
            Self::Chunked(chunks) => chunks.decode(bytes),
        };
        match &decoded {
            Ok(Decoded::End | Decoded::Trailers(_)) => *self = Self::NONE,
            Ok(Decoded::Data(_) | Decoded::More) => {}
            Err(malformed) => *self = Self::Failed(*malformed),
        }
        decoded
    }

    /// The connection has closed: returns whether that also ends the body.
    pub(crate) fn ended(&mut self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(_) | Self::Failed(_) => false,
            Self::UntilClose => {
                *self = Self::NONE;
                true
            }
        }
    }
}

/// Takes at most `left` of `bytes`.
fn take(left: &mut u64, bytes: &mut Bytes) -> Decoded {
    if bytes.is_empty() {
        return Decoded::More;
    }
    let size = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
    *left = left.saturating_sub(size as u64);
    Decoded::Data(bytes.split_to(size))
}

impl Chunks {
    fn decode(&mut self, bytes: &mut Bytes) -> Result<Decoded, Malformed> {
        loop {
            if self.at == State::Data {
                let decoded = take(&mut self.left, bytes);
                if self.left == 0 {
                    self.at = State::DataCr;
                }
                return Ok(decoded);
            }
            let Some(&byte) = bytes.first() else {
                return Ok(Decoded::More);
            };
            bytes.advance(1);
            let ended = self.at == State::EndLf;
            self.at = self.step(byte)?;
            if ended {
                return self.end();
            }
        }
    }

    /// What the byte after `byte` belongs to.
    fn step(&mut self, byte: u8) -> Result<State, Malformed> {
        match (self.at, byte) {
            (State::Start | State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.digit(byte)
            }
            (State::Size | State::Blank, b' ' | b'\t') => self.idle(State::Blank),
            (State::Size | State::Blank, b';') => Ok(State::Extension),
            (State::Size | State::Blank | State::Extension, b'\r') => Ok(State::SizeLf),
            (State::Extension, b'\t' | b' '..=b'~' | 0x80..) => self.idle(State::Extension),
            (State::SizeLf, b'\n') if self.left == 0 => Ok(State::Field),
            (State::SizeLf, b'\n') => Ok(State::Data),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            // After a chunk comes the next one; after the trailers comes nothing.
            (State::DataLf | State::EndLf, b'\n') => Ok(State::Start),
            (State::DataCr | State::DataLf, _) => Err(Malformed::ChunkEnd),
            (State::Field, b'\r') => Ok(State::EndLf),
            (State::Rest, b'\r') => self.trailer(byte, State::RestLf),
            (State::Field | State::Rest, byte) if byte != b'\n' => self.trailer(byte, State::Rest),
            (State::RestLf, b'\n') => self.trailer(byte, State::Field),
            (State::Field | State::Rest | State::RestLf | State::EndLf, _) => {
                Err(Malformed::Trailers)
            }
            _ => Err(Malformed::ChunkHead),
        }
    }

    fn digit(&mut self, byte: u8) -> Result<State, Malformed> {
        let digit = char::from(byte).to_digit(16).map(u64::from).ok_or(Malformed::ChunkHead)?;
        if self.at == State::Size && self.left == 0 {
            // A leading zero.
            self.idle(State::Size)?;
        }
        let sixteen = self.left.checked_mul(16).ok_or(Malformed::ChunkSize)?;
        self.left = sixteen.checked_add(digit).ok_or(Malformed::ChunkSize)?;
        Ok(State::Size)
    }

    /// A byte without meaning in a size's line.
    const fn idle(&mut self, next: State) -> Result<State, Malformed> {
        self.extensions += 1;
        if self.extensions > EXTENSIONS { Err(Malformed::Extensions) } else { Ok(next) }
    }

    fn trailer(&mut self, byte: u8, next: State) -> Result<State, Malformed> {
        if self.trailers.len() >= self.rules.size {
            return Err(Malformed::TrailersTooLarge(self.rules.size));
        }
        self.trailers.push(byte);
        Ok(next)
    }

    fn end(&mut self) -> Result<Decoded, Malformed> {
        if self.trailers.is_empty() {
            return Ok(Decoded::End);
        }
        let section = Bytes::from(std::mem::take(&mut self.trailers));
        fields::section(&section, self.rules).map(Decoded::Trailers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The result: the body's bytes, its trailers, and the bytes left after it.
    #[derive(Debug, PartialEq)]
    struct Whole {
        data: Vec<u8>,
        trailers: Option<HeaderMap>,
        /// `None` if the body did not end.
        left: Option<Vec<u8>>,
    }

    /// Decodes `bytes`, which arrive in pieces that end at each of `cuts`.
    fn decode(
        mut decoder: Decoder,
        bytes: &[u8],
        cuts: &[usize],
        closed: bool,
    ) -> Result<Whole, Malformed> {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut whole = Whole { data: Vec::new(), trailers: None, left: None };
        let mut pending = Bytes::new();
        for piece in cuts.windows(2) {
            let more = &bytes[piece[0]..piece[1]];
            pending = [&pending, more].concat().into();
            while whole.left.is_none() {
                match decoder.decode(&mut pending)? {
                    Decoded::More => break,
                    Decoded::Data(data) => whole.data.extend_from_slice(&data),
                    Decoded::Trailers(fields) => whole.trailers = Some(fields),
                    Decoded::End => whole.left = Some(Vec::new()),
                }
            }
        }
        if closed && whole.left.is_none() && decoder.ended() {
            whole.left = Some(Vec::new());
        }
        assert_eq!(whole.left.is_some(), decoder.is_done());
        whole.left = whole.left.map(|_| pending.to_vec());
        Ok(whole)
    }

    const SIZE: usize = 1024;
    const FIELDS: usize = 20;
    const RULES: FieldRules = FieldRules { size: SIZE, fields: FIELDS, space_before_colon: false };

    fn chunked(bytes: &[u8]) -> Result<Whole, Malformed> {
        decode(Decoder::chunked(RULES), bytes, &[], true)
    }

    fn plain(data: &str, left: &str) -> Whole {
        Whole { data: data.into(), trailers: None, left: Some(left.into()) }
    }

    #[test]
    fn chunks_end_where_they_say() {
        assert_eq!(chunked(b"5\r\nhello\r\n0\r\n\r\nrest"), Ok(plain("hello", "rest")));
        assert_eq!(chunked(b"0\r\n\r\n"), Ok(plain("", "")));
        assert_eq!(
            chunked(b"000A \t\r\n0123456789\r\n0;x=\"y\"\r\n\r\n"),
            Ok(plain("0123456789", ""))
        );
        assert_eq!(chunked(b"1;a=b\r\nx\r\n0\r\n\r\n"), Ok(plain("x", "")));
        let cut = chunked(b"5\r\nhel").unwrap();
        assert_eq!((cut.data.as_slice(), cut.left), (&b"hel"[..], None));
    }

    #[test]
    fn what_are_no_chunks_is_refused() {
        for (bytes, error) in [
            (&b"\r\n"[..], Malformed::ChunkHead),
            (b" 5\r\nhello\r\n", Malformed::ChunkHead),
            (b"g\r\n", Malformed::ChunkHead),
            (b"0x5\r\nhello\r\n", Malformed::ChunkHead),
            (b"-1\r\n", Malformed::ChunkHead),
            (b"5\nhello\r\n", Malformed::ChunkHead),
            (b"5\rhello\r\n", Malformed::ChunkHead),
            (b"5 5\r\n", Malformed::ChunkHead),
            (b"5;a\nb\r\n", Malformed::ChunkHead),
            (b"5;a\0b\r\n", Malformed::ChunkHead),
            (b"5\0\r\nhello", Malformed::ChunkHead),
            (b"1_0\r\n", Malformed::ChunkHead),
            (b"10000000000000000\r\n", Malformed::ChunkSize),
            (b"fffffffffffffffff\r\n", Malformed::ChunkSize),
            (b"5\r\nhelloXX", Malformed::ChunkEnd),
            (b"5\r\nhello\rX", Malformed::ChunkEnd),
            (b"5\r\nhello\n0\r\n\r\n", Malformed::ChunkEnd),
            (b"0\r\n\n", Malformed::Trailers),
            (b"0\r\n\rX", Malformed::Trailers),
            (b"0\r\nX: y\n\r\n", Malformed::Trailers),
            (b"0\r\nX: y\rz\r\n\r\n", Malformed::Trailers),
            (b"0\r\nno field\r\n\r\n", Malformed::Trailers),
            (b"0\r\nX : y\r\n\r\n", Malformed::Trailers),
            (b"0\r\nX: y\r\n z\r\n\r\n", Malformed::Trailers),
            (b"0\r\nX: \0\r\n\r\n", Malformed::Trailers),
            (b"0\r\n: y\r\n\r\n", Malformed::Trailers),
        ] {
            assert_eq!(chunked(bytes), Err(error), "{}", String::from_utf8_lossy(bytes));
            // Nobody knows what the bytes after the mistake are.
            let mut decoder = Decoder::chunked(RULES);
            let behind = b"0\r\n\r\nGET /b HTTP/1.1\r\n\r\n";
            let mut bytes = Bytes::from([bytes, behind].concat());
            let failed = std::iter::repeat_with(|| decoder.decode(&mut bytes).err());
            assert_eq!(
                failed.skip_while(Option::is_none).take(9).collect::<Vec<_>>(),
                [Some(error); 9]
            );
            assert!(!decoder.is_done() && !decoder.ended(), "{error}");
        }
    }

    /// RFC 9112 §5.1.
    #[test]
    fn only_responses_may_have_spaces_before_a_colon() {
        let bytes = b"0\r\nX \t: y \r\n\r\n";
        let answer = Decoder::chunked(FieldRules { space_before_colon: true, ..RULES });
        let whole = decode(answer, bytes, &[], true).unwrap();
        assert_eq!(whole.trailers.unwrap()["x"], "y");
        assert_eq!(chunked(bytes), Err(Malformed::Trailers));
    }

    #[test]
    fn the_largest_size_is_a_size() {
        let cut = chunked(b"ffffffffffffffff\r\nabc").unwrap();
        assert_eq!((cut.data.as_slice(), cut.left), (&b"abc"[..], None));
    }

    #[test]
    fn extensions_and_trailers_have_a_bound() {
        let extended = |size: usize| format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(size));
        assert_eq!(chunked(extended(EXTENSIONS).as_bytes()), Ok(plain("x", "")));
        assert_eq!(chunked(extended(EXTENSIONS + 1).as_bytes()), Err(Malformed::Extensions));
        // The limit applies to all chunks together.
        let half = format!("1;{}\r\nx\r\n", "e".repeat(EXTENSIONS / 2 + 1));
        assert_eq!(chunked((half.clone() + &half).as_bytes()), Err(Malformed::Extensions));
        for idle in ["0", " "] {
            let line = |size: usize| format!("0{}\r\n\r\n", idle.repeat(size));
            assert_eq!(chunked(line(EXTENSIONS).as_bytes()), Ok(plain("", "")));
            assert_eq!(chunked(line(EXTENSIONS + 1).as_bytes()), Err(Malformed::Extensions));
        }
        let trailed = |size: usize| format!("0\r\nX: {}\r\n\r\n", "t".repeat(size - 5));
        let most = chunked(trailed(SIZE).as_bytes()).unwrap();
        assert_eq!(most.trailers.unwrap()["x"].len(), SIZE - 5);
        assert_eq!(chunked(trailed(SIZE + 1).as_bytes()), Err(Malformed::TrailersTooLarge(SIZE)));
        let many = |count: usize| format!("0\r\n{}\r\n", "X: y\r\n".repeat(count));
        assert_eq!(chunked(many(FIELDS).as_bytes()).unwrap().trailers.unwrap().len(), FIELDS);
        assert_eq!(chunked(many(FIELDS + 1).as_bytes()), Err(Malformed::TooManyTrailers(FIELDS)));
    }

    #[test]
    fn a_length_ends_a_body_and_a_close_does_not() {
        assert_eq!(decode(Decoder::Length(5), b"hello!", &[], false), Ok(plain("hello", "!")));
        let cut = decode(Decoder::Length(5), b"hell", &[], true).unwrap();
        assert_eq!((cut.data.as_slice(), cut.left), (&b"hell"[..], None));
        assert_eq!(decode(Decoder::NONE, b"!", &[], false), Ok(plain("", "!")));
        assert_eq!(decode(Decoder::UntilClose, b"hello", &[], true), Ok(plain("hello", "")));
        assert_eq!(decode(Decoder::UntilClose, b"hello", &[], false).unwrap().left, None);
    }

    proptest! {
        /// However the bytes are cut, the body, its trailers and the bytes after it are the same; so is the error.
        #[test]
        fn cuts_change_nothing(
            bytes in prop_oneof![
                prop::collection::vec(prop::sample::select(&b"05aF;\r\n \tx:y"[..]), 0..60),
                prop::collection::vec("[0-9a-f]{1,2}(;e)?\r\n[a-z]{1,9}\r\n", 0..6)
                    .prop_map(|parts| (parts.concat() + "0\r\nX: y\r\n\r\nrest").into_bytes()),
            ],
            cuts in prop::collection::vec(any::<usize>(), 0..12),
        ) {
            let once = decode(Decoder::chunked(RULES), &bytes, &[], true);
            prop_assert_eq!(&decode(Decoder::chunked(RULES), &bytes, &cuts, true), &once);
            let each: Vec<usize> = (0..bytes.len()).collect();
            prop_assert_eq!(&decode(Decoder::chunked(RULES), &bytes, &each, true), &once);
        }
    }
}
