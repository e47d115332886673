//! One side of the conversation.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::system::passing;

/// How many bytes one line may have.
const LINE: usize = 4096;

/// How many descriptors may have come without their lines.
const AHEAD: usize = 16;

/// Lines of JSON, each of which may carry one descriptor.
#[derive(Debug)]
pub(super) struct Channel {
    stream: UnixStream,
    unread: Vec<u8>,
    /// The descriptors of lines that are unread or just read, in their order.
    passed: VecDeque<OwnedFd>,
}

impl Channel {
    pub(super) const fn new(stream: UnixStream) -> Self {
        Self { stream, unread: Vec::new(), passed: VecDeque::new() }
    }

    /// Whether the other side runs as the same user as this one, and its process number. The system vouches for both.
    pub(super) fn peer(&self) -> io::Result<(bool, u32)> {
        let peer = self.stream.peer_cred()?;
        let number = peer.pid().and_then(|number| u32::try_from(number).ok());
        // There is none for a process of another container.
        Ok((peer.uid() == passing::own_user(), number.unwrap_or_default()))
    }

    /// Sends a line, and a descriptor with it.
    pub(super) async fn say(
        &self,
        message: &impl Serialize,
        mut descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let line = line(message)?;
        let mut rest = line.as_slice();
        while !rest.is_empty() {
            let write = || passing::send(&self.stream, rest, descriptor);
            let written = self.stream.async_io(Interest::WRITABLE, write).await?;
            descriptor = None;
            rest = rest.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// Sends a last line if the other side can take it at once.
    pub(super) fn say_at_last(&self, message: &impl Serialize) {
        let sent = line(message).and_then(|line| passing::send(&self.stream, &line, None));
        if let Err(error) = sent {
            tracing::debug!(%error, "The other side of the takeover does not hear why it ends.");
        }
    }

    /// The next line. `None` if the other side has ended.
    pub(super) async fn hear<M: DeserializeOwned>(&mut self) -> io::Result<Option<M>> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                let message = serde_json::from_slice(&line);
                return message.map(Some).map_err(|error| {
                    let line = line.trim_ascii_end().escape_ascii();
                    invalid(format!("this version does not know what it says (`{line}`): {error}"))
                });
            }
            if self.unread.len() > LINE || self.passed.len() > AHEAD {
                return Err(invalid("it says more than this version wants to know".to_owned()));
            }
            let mut bytes = [0; 1024];
            let (stream, passed) = (&self.stream, &mut self.passed);
            let receive = || passing::receive(stream, &mut bytes, passed);
            let read = stream.async_io(Interest::READABLE, receive).await?;
            if read == 0 {
                return Ok(None);
            }
            self.unread.extend(bytes.iter().take(read));
        }
    }

    /// The descriptor of the line that was heard last.
    pub(super) fn descriptor(&mut self) -> Option<OwnedFd> {
        self.passed.pop_front()
    }
}

fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}
