//! HTTP/1.1 as it stands on the wire, read strictly: a peer that bends the grammar fails the test.

use std::io::{self, BufRead, BufReader, Read};

/// The values of a field of `head`, in order.
pub(crate) fn field<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let named = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value.trim()).collect()
}

/// The head of a request or a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// The request line or the status line.
    pub(crate) line: String,
    /// The fields, in order, names as they came.
    pub(crate) fields: Vec<(String, String)>,
}

/// How a body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is none.
    Empty,
    /// `Content-Length`.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// The end of the connection (responses only).
    Close,
}

/// Reads messages off one connection.
#[derive(Debug)]
pub(crate) struct Reader<R> {
    inner: BufReader<R>,
}

impl Head {
    /// The value of a field that must not be there twice.
    pub(crate) fn field<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        let mut values = self.fields(name);
        let first = values.next();
        assert!(values.next().is_none(), "`{name}` is there twice: {self:?}");
        first
    }

    /// All values of a field.
    pub(crate) fn fields<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let same = move |(field, value): &'a (String, String)| {
            field.eq_ignore_ascii_case(name).then_some(value.as_str())
        };
        self.fields.iter().filter_map(same)
    }

    /// What the fields say of the body; `None` where they say nothing.
    pub(crate) fn framing(&self) -> Option<Framing> {
        let length = self.field("content-length");
        match (self.field("transfer-encoding"), length) {
            (Some(_), Some(_)) => panic!("a length and a transfer encoding: {self:?}"),
            (Some(coding), None) => {
                assert_eq!(coding.to_ascii_lowercase(), "chunked", "{self:?}");
                Some(Framing::Chunked)
            }
            (None, Some(digits)) => {
                assert!(digits.bytes().all(|b| b.is_ascii_digit()), "{self:?}");
                Some(Framing::Length(digits.parse().expect("a length")))
            }
            (None, None) => None,
        }
    }
}

impl<R: Read> Reader<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner: BufReader::with_capacity(64 << 10, inner) }
    }

    /// The next head; `None` where the connection ends before its first byte.
    pub(crate) fn head(&mut self) -> io::Result<Option<Head>> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match self.byte()? {
                Some(byte) => head.push(byte),
                None if head.is_empty() => return Ok(None),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let text = String::from_utf8(head).expect("a head of UTF-8");
        let mut lines = text.trim_end().split("\r\n");
        let line = lines.next().unwrap_or_default().to_owned();
        let field = |line: &str| {
            let (name, value) = line.split_once(':').expect("a field");
            let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
            assert!(!name.is_empty() && name.bytes().all(token), "a field name: {line:?}");
            assert!(!value.contains(['\r', '\n', '\0']), "a field value: {line:?}");
            (name.to_owned(), value.trim_matches([' ', '\t']).to_owned())
        };
        let fields = lines.map(field).collect();
        Ok(Some(Head { line, fields }))
    }

    /// The body, handed to `take` piece by piece, which says whether it wants more. Whether it is whole.
    pub(crate) fn body(
        &mut self,
        framing: Framing,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> io::Result<bool> {
        match framing {
            Framing::Empty => Ok(true),
            Framing::Length(length) => self.exactly(length, &mut take),
            Framing::Chunked => loop {
                let size = self.line()?;
                let size = u64::from_str_radix(&size, 16).expect("a chunk size");
                if size == 0 {
                    // Trailers, if any, and the empty line.
                    while !self.line()?.is_empty() {}
                    return Ok(true);
                }
                if !self.exactly(size, &mut take)? {
                    return Ok(false);
                }
                assert_eq!(self.line()?, "", "a chunk ends with CR LF");
            },
            Framing::Close => loop {
                let piece = self.inner.fill_buf()?;
                let length = piece.len();
                if length == 0 || !take(piece) {
                    return Ok(length == 0);
                }
                self.inner.consume(length);
            },
        }
    }

    /// Whether the peer has ended, or broken, the connection without another byte.
    pub(crate) fn ended(&mut self) -> bool {
        match self.byte() {
            Ok(None) => true,
            Ok(Some(_)) => false,
            Err(error) => broken(&error),
        }
    }

    fn exactly(&mut self, length: u64, take: &mut impl FnMut(&[u8]) -> bool) -> io::Result<bool> {
        let mut left = length;
        while left > 0 {
            let buffered = self.inner.fill_buf()?;
            if buffered.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffered.len());
            let more = take(&buffered[..most]);
            self.inner.consume(most);
            left -= most as u64;
            if !more {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A line without its CR LF.
    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.push(self.byte()?.ok_or(io::ErrorKind::UnexpectedEof)?);
        }
        line.truncate(line.len() - 2);
        Ok(String::from_utf8(line).expect("a line of UTF-8"))
    }

    fn byte(&mut self) -> io::Result<Option<u8>> {
        let byte = self.inner.fill_buf()?.first().copied();
        self.inner.consume(usize::from(byte.is_some()));
        Ok(byte)
    }
}

/// Whether the error says that the peer has gone (and not that it is late).
pub(crate) fn broken(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}
