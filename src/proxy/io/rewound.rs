//! A connection from which bytes were read that must be read again, before the rest.
//!
//! With it, another protocol starts with its own first byte: after the 101 that switched to it, or with the
//! preface by which the HTTP/1.1 code recognised HTTP/2.

use bytes::Bytes;
use tokio::io::ReadBuf;

use super::wrapped::{Hooks, Wrapped};

/// A connection, and the bytes to read before it.
pub(crate) type Rewound<T> = Wrapped<T, First>;

/// The bytes to read before the rest.
#[derive(Debug)]
pub(crate) struct First(Bytes);

impl<T> Rewound<T> {
    /// `io`, from which `first` was already read.
    pub(crate) const fn new(io: T, first: Bytes) -> Self {
        Self { io, hooks: First(first) }
    }
}

impl Hooks for First {
    fn first(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let size = self.0.len().min(buf.remaining());
        buf.put_slice(&self.0.split_to(size));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test]
    async fn what_was_read_comes_first_in_small_reads_too() {
        let (near, mut far) = duplex(64);
        far.write_all(b"def").await.unwrap();
        let mut near = Rewound::new(near, Bytes::from_static(b"abc"));
        for wanted in [&b"ab"[..], b"cd", b"ef"] {
            let mut read = [0; 2];
            near.read_exact(&mut read).await.unwrap();
            assert_eq!(read, wanted);
        }
    }

    #[tokio::test]
    async fn what_was_read_comes_before_the_end() {
        let (near, far) = duplex(64);
        drop(far);
        let mut read = Vec::new();
        Rewound::new(near, Bytes::from_static(b"PRI *")).read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"PRI *");
    }
}
