//! The old process: hands its sockets over.

use std::fmt;
use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::channel::Channel;
use super::{GiverMessage, PATIENCE, PROTOCOL, Passed, SocketFile, TakerMessage};
use crate::telemetry::limiter::LogLimiter;

/// How long to wait after a process that came could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// Waits at a socket's file for a process that wants to replace this one. When it is dropped, the file goes.
#[derive(Debug)]
pub(crate) struct Giver(SocketFile);

/// How one attempt to take the sockets ended, as `mwl_takeovers_total` counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// They were handed over.
    HandedOver,
    /// The other process was told why it cannot have them.
    Refused,
    /// The other process ended, or the conversation broke.
    Failed,
}

/// Why the sockets were not handed over.
#[derive(Debug)]
enum GiveError {
    /// The other process is told this.
    Refused(String),
    Failed(String),
}

impl Outcome {
    /// The label's value.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::HandedOver => "handedOver",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

impl From<io::Error> for GiveError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl fmt::Display for GiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Refused(why) | Self::Failed(why)) = self;
        f.write_str(why)
    }
}

impl Giver {
    /// Waits behind this file, which is in its place.
    pub(crate) const fn new(file: SocketFile) -> Self {
        Self(file)
    }

    /// Waits until a process has taken the `sockets`. Returns its number and what it was handed. Every attempt is counted.
    pub(crate) async fn give(
        mut self,
        sockets: impl Fn() -> io::Result<Vec<Passed>>,
        count: impl Fn(Outcome),
    ) -> (u32, Vec<Passed>) {
        let message = "A process that wants to take over could not be accepted.";
        let told = LogLimiter::new(message, None);
        loop {
            let stream = match self.0.accept().await {
                Ok(stream) => stream,
                Err(error) => {
                    if let Some(untold) = told.admits(Instant::now()) {
                        tracing::warn!(%error, untold, "{message}");
                    }
                    sleep(PAUSE).await;
                    continue;
                }
            };
            let mut channel = Channel::new(stream);
            let outcome = tokio::select! {
                biased;
                outcome = hand_over(&mut channel, &sockets) => outcome,
                () = sleep(PATIENCE) => Err(GiveError::Refused(format!("it was not ready within {PATIENCE:?}"))),
                never = self.refuse_others(&count) => match never {},
            };
            let error = match outcome {
                Ok(handed) => {
                    count(Outcome::HandedOver);
                    // The other process puts its own file there.
                    self.0.leave();
                    return handed;
                }
                Err(error) => error,
            };
            let outcome = match &error {
                GiveError::Refused(why) => refuse(&channel, why),
                GiveError::Failed(_) => Outcome::Failed,
            };
            count(outcome);
            tracing::warn!(
                %error,
                "Another process wanted to take over and has not: this one goes on."
            );
        }
    }

    /// Only one process can take over at a time.
    async fn refuse_others(&self, count: &impl Fn(Outcome)) -> std::convert::Infallible {
        loop {
            match self.0.accept().await {
                Ok(stream) => count(refuse(
                    &Channel::new(stream),
                    "another process is taking over at this moment; try again",
                )),
                Err(_) => sleep(PAUSE).await,
            }
        }
    }
}

fn refuse(channel: &Channel, why: &str) -> Outcome {
    channel.say_at_last(&GiverMessage::Refused { why: why.to_owned() });
    Outcome::Refused
}

/// One whole conversation.
async fn hand_over(
    channel: &mut Channel,
    sockets: &impl Fn() -> io::Result<Vec<Passed>>,
) -> Result<(u32, Vec<Passed>), GiveError> {
    let (same_user, number) = channel.peer()?;
    if !same_user {
        return Err(GiveError::Refused("it runs as another user than this process".into()));
    }
    match channel.hear().await? {
        Some(TakerMessage::Take { protocol: PROTOCOL }) => {}
        Some(TakerMessage::Take { protocol }) => {
            return Err(GiveError::Refused(format!(
                "it speaks version {protocol} of the takeover, and this process version {PROTOCOL}; stop this process first"
            )));
        }
        Some(TakerMessage::Ready) => {
            return Err(GiveError::Refused("it is ready before it has anything".into()));
        }
        None => return Err(GiveError::Failed("it ended without a word".into())),
    }
    let sockets = sockets()?;
    for Passed { name, configured, listener } in &sockets {
        let message = GiverMessage::Socket { name: (*name).into(), configured: *configured };
        channel.say(&message, Some(listener.as_fd())).await?;
    }
    channel.say(&GiverMessage::All { sockets: sockets.len() }, None).await?;
    match channel.hear().await? {
        Some(TakerMessage::Ready) => {}
        Some(TakerMessage::Take { .. }) => {
            return Err(GiveError::Refused("it asks twice".into()));
        }
        None => return Err(GiveError::Failed("it ended before it was ready".into())),
    }
    channel.say(&GiverMessage::Drains, None).await?;
    Ok((number, sockets))
}
