//! Receives the header with which a connection begins.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::{Ends, HeaderError, Parsed, read};
use crate::language::temporal::Span;

/// A header that did not come.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ReceiveError {
    pub(crate) reason: HeaderFailure,
    message: String,
}

/// Why headers do not come: the label of `mwl_proxy_protocol_failures_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFailure {
    /// It took longer than `limits.headTimeout`.
    Timeout,
    /// The sender left.
    Closed,
    /// The connection begins with something else.
    Missing,
    /// It begins like a header, and is none.
    Malformed,
}

impl HeaderFailure {
    /// All of them, in the order of the documentation.
    pub(crate) const ALL: [Self; 4] = [Self::Timeout, Self::Closed, Self::Missing, Self::Malformed];

    /// The label.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Missing => "missing",
            Self::Malformed => "malformed",
        }
    }
}

impl From<HeaderError> for ReceiveError {
    fn from(error: HeaderError) -> Self {
        let reason = match error {
            HeaderError::Missing => HeaderFailure::Missing,
            HeaderError::Malformed(_) => HeaderFailure::Malformed,
        };
        Self { reason, message: error.to_string() }
    }
}

impl From<io::Error> for ReceiveError {
    fn from(error: io::Error) -> Self {
        let message = format!("the sender was gone before the end of its PROXY header: {error}");
        Self { reason: HeaderFailure::Closed, message }
    }
}

/// Receives the header of a connection, within `limit`, and no byte more. `None`: it names no addresses.
pub(crate) async fn receive<T: AsyncRead + Unpin>(
    io: &mut T,
    limit: Duration,
) -> Result<Option<Ends>, ReceiveError> {
    #[expect(clippy::disallowed_methods, reason = "reading a header is a leaf: it may be dropped")]
    let received = tokio::time::timeout(limit, receive_whole(io)).await;
    received.unwrap_or_else(|_elapsed| {
        let limit = Span::from_duration(limit);
        let message = format!("the PROXY header did not come within {limit} (limits.headTimeout)");
        Err(ReceiveError { reason: HeaderFailure::Timeout, message })
    })
}

async fn receive_whole<T: AsyncRead + Unpin>(io: &mut T) -> Result<Option<Ends>, ReceiveError> {
    let mut header = Vec::new();
    let mut needs = 0;
    loop {
        let filled = header.len();
        header.resize(needs, 0);
        io.read_exact(header.get_mut(filled..).unwrap_or_default()).await?;
        match read(&header)? {
            Parsed::Whole(ends) => return Ok(ends),
            Parsed::Needs(more) => needs = more,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt as _, duplex};
    use tokio::time::Instant;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    fn told(received: Result<Option<Ends>, ReceiveError>) -> String {
        let error = received.unwrap_err();
        format!("{}: {error}", error.reason.as_str())
    }

    #[tokio::test]
    async fn nothing_after_a_header_is_read() {
        for header in [&b"PROXY TCP6 ::1 ::2 3 4\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"] {
            let (mut near, mut far) = duplex(1024);
            far.write_all(&[header, b"GET /"].concat()).await.unwrap();
            receive(&mut near, LIMIT).await.unwrap();
            let mut rest = [0; 5];
            near.read_exact(&mut rest).await.unwrap();
            assert_eq!(&rest, b"GET /");
        }
    }

    #[tokio::test]
    async fn a_header_may_come_in_pieces() {
        let (mut near, mut far) = duplex(1);
        let header = "PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n";
        let (received, sent) =
            tokio::join!(receive(&mut near, LIMIT), far.write_all(header.as_bytes()));
        sent.unwrap();
        assert_eq!(received.unwrap().unwrap().source, "192.0.2.1:56324".parse().unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_header_has_a_bound() {
        let (mut near, mut far) = duplex(1024);
        far.write_all(b"PROXY TCP4 192.0.2.1").await.unwrap();
        let begun = Instant::now();
        insta::assert_snapshot!(told(receive(&mut near, LIMIT).await), @"timeout: the PROXY header did not come within PT5S (limits.headTimeout)");
        assert_eq!(begun.elapsed(), LIMIT);
    }

    #[tokio::test]
    async fn what_is_no_header_is_told_with_its_reason() {
        let send = async |bytes: &[u8]| {
            let (mut near, mut far) = duplex(8192);
            far.write_all(bytes).await.unwrap();
            drop(far);
            told(receive(&mut near, LIMIT).await)
        };
        insta::assert_snapshot!(send(b"").await, @"closed: the sender was gone before the end of its PROXY header: early eof");
        insta::assert_snapshot!(send(b"GET / HTTP/1.1\r\n\r\n").await, @"missing: the connection does not begin with a PROXY header");
        insta::assert_snapshot!(send(&[22, 3, 1]).await, @"missing: the connection does not begin with a PROXY header");
        insta::assert_snapshot!(send(b"PROXY TCP4 a b 1 2 and so on and on\r\n").await, @"malformed: the PROXY header is malformed: something follows its ports");
    }
}
