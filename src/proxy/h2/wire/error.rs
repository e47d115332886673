//! How connections and streams fail.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

/// An error code (RFC 9113 §7).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reason(u32);

/// Why an operation on a stream failed, or a connection ended.
#[derive(Debug)]
pub(crate) struct Error(Kind);

#[derive(Debug)]
enum Kind {
    /// The stream was reset.
    Reset(Reason, Initiator),
    /// The connection was ended by a GOAWAY, with this text.
    GoAway(Reason, Initiator, Bytes),
    /// The caller named a code.
    Reason(Reason),
    /// The caller did what the stream does not allow.
    Misuse(&'static str),
    /// The trailers are larger than the limit.
    TrailersTooLarge,
    /// Reading or writing failed.
    Io(io::Error),
}

/// Who ended a stream or a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Initiator {
    /// The caller.
    User,
    /// This layer, because the other side broke the protocol.
    Local,
    /// The other side.
    Remote,
}

/// The same as an [`Error`], kept for everybody who asks.
#[derive(Clone, Debug)]
pub(super) enum Cause {
    Reset(Reason, Initiator),
    GoAway(Reason, Initiator, Bytes),
    Io(io::ErrorKind, Arc<str>),
}

/// How the other side breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The connection ends with a GOAWAY, which carries this text.
    Connection(Reason, &'static str),
    /// The stream is reset.
    Stream(u32, Reason),
}

impl Reason {
    pub(crate) const NO_ERROR: Self = Self(0);
    pub(crate) const PROTOCOL_ERROR: Self = Self(1);
    pub(crate) const INTERNAL_ERROR: Self = Self(2);
    pub(crate) const FLOW_CONTROL_ERROR: Self = Self(3);
    pub(crate) const STREAM_CLOSED: Self = Self(5);
    pub(crate) const FRAME_SIZE_ERROR: Self = Self(6);
    pub(crate) const REFUSED_STREAM: Self = Self(7);
    pub(crate) const CANCEL: Self = Self(8);
    pub(crate) const COMPRESSION_ERROR: Self = Self(9);
    pub(crate) const ENHANCE_YOUR_CALM: Self = Self(11);

    /// The code as a number.
    pub(crate) const fn code(self) -> u32 {
        self.0
    }

    /// What the code means, and its name.
    const fn texts(self) -> (&'static str, &'static str) {
        match self.0 {
            0 => ("not a result of an error", "NO_ERROR"),
            1 => ("unspecific protocol error detected", "PROTOCOL_ERROR"),
            2 => ("unexpected internal error encountered", "INTERNAL_ERROR"),
            3 => ("flow-control protocol violated", "FLOW_CONTROL_ERROR"),
            4 => ("settings ACK not received in timely manner", "SETTINGS_TIMEOUT"),
            5 => ("received frame when stream half-closed", "STREAM_CLOSED"),
            6 => ("frame with invalid size", "FRAME_SIZE_ERROR"),
            7 => ("refused stream before processing any application logic", "REFUSED_STREAM"),
            8 => ("stream no longer needed", "CANCEL"),
            9 => ("unable to maintain the header compression context", "COMPRESSION_ERROR"),
            10 => (
                "connection established in response to a CONNECT request was reset or abnormally closed",
                "CONNECT_ERROR",
            ),
            11 => ("detected excessive load generating behavior", "ENHANCE_YOUR_CALM"),
            12 => ("security properties do not meet minimum requirements", "INADEQUATE_SECURITY"),
            13 => ("endpoint requires HTTP/1.1", "HTTP_1_1_REQUIRED"),
            _ => ("unknown reason", ""),
        }
    }
}

impl From<u32> for Reason {
    fn from(code: u32) -> Self {
        Self(code)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.texts().0)
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.texts().1 {
            "" => write!(f, "Reason({:x})", self.0),
            name => f.write_str(name),
        }
    }
}

impl Error {
    /// The caller did what the stream does not allow.
    pub(super) const fn misuse(what: &'static str) -> Self {
        Self(Kind::Misuse(what))
    }

    /// The trailers are larger than the limit.
    pub(super) const fn trailers_too_large() -> Self {
        Self(Kind::TrailersTooLarge)
    }

    /// The error code, if it has one.
    pub(crate) const fn reason(&self) -> Option<Reason> {
        match &self.0 {
            Kind::Reset(reason, _) | Kind::GoAway(reason, ..) | Kind::Reason(reason) => {
                Some(*reason)
            }
            _ => None,
        }
    }

    /// Whether reading or writing failed.
    pub(crate) const fn is_io(&self) -> bool {
        matches!(self.0, Kind::Io(_))
    }

    /// The error of reading or writing, if it is one.
    pub(crate) fn into_io(self) -> Option<io::Error> {
        match self.0 {
            Kind::Io(error) => Some(error),
            _ => None,
        }
    }

    /// Whether a GOAWAY ended the connection.
    pub(crate) const fn is_go_away(&self) -> bool {
        matches!(self.0, Kind::GoAway(..))
    }

    /// Whether the stream was reset.
    pub(crate) const fn is_reset(&self) -> bool {
        matches!(self.0, Kind::Reset(..))
    }

    /// Whether the other side sent the reset or the GOAWAY.
    pub(crate) const fn is_remote(&self) -> bool {
        matches!(self.initiator(), Some(Initiator::Remote))
    }

    /// Whether the other side has broken the protocol.
    pub(crate) const fn is_library(&self) -> bool {
        matches!(self.initiator(), Some(Initiator::Local))
    }

    /// Whether the trailers are larger than the limit.
    pub(crate) const fn is_trailers_too_large(&self) -> bool {
        matches!(self.0, Kind::TrailersTooLarge)
    }

    const fn initiator(&self) -> Option<Initiator> {
        match &self.0 {
            Kind::Reset(_, initiator) | Kind::GoAway(_, initiator, _) => Some(*initiator),
            _ => None,
        }
    }
}

impl From<Reason> for Error {
    fn from(reason: Reason) -> Self {
        Self(Kind::Reason(reason))
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self(Kind::Io(error))
    }
}

impl From<&Cause> for Error {
    fn from(cause: &Cause) -> Self {
        Self(match cause {
            Cause::Reset(reason, initiator) => Kind::Reset(*reason, *initiator),
            Cause::GoAway(reason, initiator, text) => {
                Kind::GoAway(*reason, *initiator, text.clone())
            }
            Cause::Io(kind, text) => Kind::Io(io::Error::new(*kind, text.as_ref())),
        })
    }
}

impl From<&io::Error> for Cause {
    fn from(error: &io::Error) -> Self {
        Self::Io(error.kind(), error.to_string().into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = |initiator| match initiator {
            Initiator::User => "sent by user",
            Initiator::Local => "detected",
            Initiator::Remote => "received",
        };
        match &self.0 {
            Kind::Reset(reason, initiator) => {
                write!(f, "stream error {}: {reason}", by(*initiator))
            }
            Kind::GoAway(reason, initiator, text) => {
                write!(f, "connection error {}: {reason}", by(*initiator))?;
                if text.is_empty() { Ok(()) } else { write!(f, " ({text:?})") }
            }
            Kind::Reason(reason) => write!(f, "protocol error: {reason}"),
            Kind::Misuse(what) => write!(f, "user error: {what}"),
            Kind::TrailersTooLarge => f.write_str("the trailers are too large"),
            Kind::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}
