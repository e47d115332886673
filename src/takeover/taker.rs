//! The new process: takes the sockets of the old one.

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use tokio::time::sleep;

use super::channel::Channel;
use super::{ANSWER, GiverMessage, PROTOCOL, TakeoverError, TakerMessage, file};
use crate::system::inherited::Inherited;

/// The new process's side, once it has the sockets.
#[derive(Debug)]
pub(crate) struct Taker {
    channel: Channel,
    path: PathBuf,
}

/// Takes the sockets of the process behind `path`. `None` if there is no such process.
///
/// # Errors
/// When it refuses, or does not answer. It serves on.
pub(crate) async fn take(path: &Path) -> Result<Option<(Taker, Inherited)>, TakeoverError> {
    let Some(stream) = file::connect(path).await? else {
        return Ok(None);
    };
    let mut taker = Taker { channel: Channel::new(stream), path: path.to_owned() };
    let peer = taker.channel.peer().map_err(|error| taker.wrong(&error.to_string()))?;
    let (true, number) = peer else {
        return Err(taker.wrong("it runs as another user than this process"));
    };
    let asked = taker.channel.say(&TakerMessage::Take { protocol: PROTOCOL }, None).await;
    if let Err(error) = asked {
        tracing::debug!(%error, "The old process has closed already: it may have said why.");
    }
    let mut inherited = Inherited::of_process(number);
    let mut count = 0;
    loop {
        match taker.answer().await? {
            Some(GiverMessage::Socket { name, configured }) => {
                count += 1;
                let listener = taker.channel.descriptor().map(TcpListener::from);
                let listener = listener.ok_or_else(|| taker.wrong("a socket is missing"))?;
                let added = inherited.add(name.clone(), Some(configured), listener);
                added.map_err(|error| taker.wrong(&format!("`{name}` {configured}: {error}")))?;
            }
            Some(GiverMessage::All { sockets }) if sockets == count => {
                return Ok(Some((taker, inherited)));
            }
            Some(GiverMessage::All { .. } | GiverMessage::Drains) => {
                return Err(taker.wrong("it has not handed over what it announced"));
            }
            Some(GiverMessage::Refused { why }) => return Err(taker.wrong(&why)),
            None => return Err(taker.wrong("it ended")),
        }
    }
}

impl Taker {
    /// Tells the old process that this one accepts, so that it drains.
    ///
    /// # Errors
    /// When the old one goes on: this one must stop. If the old one has gone, all is well.
    pub(crate) async fn ready(mut self) -> Result<(), TakeoverError> {
        let gone = |error: &dyn std::fmt::Display| {
            tracing::warn!(%error, "The old process has not said that it drains: this one serves in any case.");
        };
        if let Err(error) = self.channel.say(&TakerMessage::Ready, None).await {
            // It may have said why before it closed.
            gone(&error);
        }
        match self.answer().await {
            Ok(Some(GiverMessage::Refused { why })) => return Err(self.wrong(&why)),
            Ok(Some(GiverMessage::Drains)) => {}
            Ok(Some(_)) => gone(&"it said something else"),
            Ok(None) => gone(&"it has ended"),
            Err(error) => gone(&error),
        }
        Ok(())
    }

    /// The next message of the old process, in time.
    async fn answer(&mut self) -> Result<Option<GiverMessage>, TakeoverError> {
        let heard = in_time(self.channel.hear()).await;
        heard.map_err(|error| self.wrong(&error.to_string()))
    }

    fn wrong(&self, why: &str) -> TakeoverError {
        TakeoverError(format!(
            "the process behind {} has not handed over its sockets: {why}",
            self.path.display()
        ))
    }
}

async fn in_time<T>(answer: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::select! {
        biased;
        answer = answer => answer,
        () = sleep(ANSWER) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("it has not answered within {ANSWER:?}"),
        )),
    }
}
