//! What the HTTP library cannot say to an HTTP/1 client, and the bytes of the connection therefore do.
//!
//! There is an answer's interim answers (RFC 9110 §15.2), of which the library knows none but 100, and there
//! are fields that it takes off an answer. Both have a place in the stream that only the connection finds:
//! the library flushes when it has nothing left to write, and what is said there stands between two
//! messages. So interim answers wait for a flush; whoever gives the answer waits until they are out, and
//! until a flush where the answer's own head is to be added to, whose first byte is then the next that the
//! library writes. A connection that has nothing of the kind to say looks at one flag.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use super::interim::Dropped;

/// How many bytes of interim answers wait for a client that reads slowly.
const PENDING: usize = 16 * 1024;

/// What is to be said on one connection. Its requests come one after the other.
#[derive(Debug, Default)]
pub(super) struct Speech {
    /// Whether there is anything of it.
    any: AtomicBool,
    /// Whether the request has its answer: what belongs before it comes too late.
    answered: AtomicBool,
    held: Mutex<Option<Box<Held>>>,
}

#[derive(Debug, Default)]
struct Held {
    /// Whole heads, before the answer.
    before: Vec<u8>,
    /// Whole lines, behind the status line of the answer.
    behind: Vec<u8>,
    /// Whether a flush is waited for.
    flush: bool,
    /// Whether the connection's end is the end of the answer's body, from now on.
    unframed: bool,
}

impl Speech {
    /// Whether there is anything to say, or to wait for.
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// A request has come.
    pub(super) fn begin(&self) {
        self.answered.store(false, Ordering::Relaxed);
    }

    /// Has `head`, a whole interim answer, said before the answer.
    pub(super) fn before(&self, head: &[u8]) -> Result<(), Dropped> {
        if self.answered.load(Ordering::Relaxed) {
            return Err(Dropped::Late);
        }
        self.hold(|held| {
            if held.before.len().saturating_add(head.len()) > PENDING {
                return Err(Dropped::Full);
            }
            held.before.extend_from_slice(head);
            Ok(())
        })
    }

    /// Has `lines` said behind the status line of the answer, which is the next that the library writes: after
    /// [`Speech::quiet`].
    pub(super) fn behind(&self, lines: Vec<u8>) {
        self.hold(|held| held.behind = lines);
    }

    /// The answer's body will end with the connection.
    pub(super) fn unframed(&self) {
        self.hold(|held| held.unframed = true);
    }

    /// The request has its answer. Whether there is anything to say before that.
    pub(super) fn answer(&self) -> bool {
        self.answered.store(true, Ordering::Relaxed);
        self.any()
    }

    /// Waits until all is out that was said and written before. Who gets it out wakes the task of the
    /// connection, which is the one to wait.
    pub(super) async fn quiet(&self) {
        self.hold(|held| held.flush = true);
        let flushed = || self.lock().as_ref().is_none_or(|held| !held.flush);
        poll_fn(|_| if flushed() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Takes the interim answers that are to be said now.
    pub(super) fn take_before(&self) -> Vec<u8> {
        self.take(|held| std::mem::take(&mut held.before))
    }

    /// Takes what is to be said behind the status line that is written now.
    pub(super) fn take_behind(&self) -> Vec<u8> {
        self.take(|held| std::mem::take(&mut held.behind))
    }

    /// Takes the news that the answer's body will end with the connection.
    pub(super) fn take_unframed(&self) -> bool {
        self.take(|held| std::mem::take(&mut held.unframed))
    }

    /// All is out that was said and written.
    pub(super) fn flushed(&self) {
        self.take(|held| held.flush = false);
    }

    fn hold<R>(&self, change: impl FnOnce(&mut Held) -> R) -> R {
        let done = change(self.lock().get_or_insert_default());
        self.any.store(true, Ordering::Relaxed);
        done
    }

    fn take<R: Default>(&self, take: impl FnOnce(&mut Held) -> R) -> R {
        let mut slot = self.lock();
        let Some(held) = slot.as_mut() else {
            return R::default();
        };
        let taken = take(held);
        if held.before.is_empty() && held.behind.is_empty() && !held.flush && !held.unframed {
            *slot = None;
            self.any.store(false, Ordering::Relaxed);
        }
        taken
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<Held>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn what_is_taken_is_said_once() {
        let speech = Speech::default();
        assert!(!speech.any());
        speech.before(b"one ").unwrap();
        speech.before(b"two").unwrap();
        speech.behind(b"three".to_vec());
        speech.unframed();
        assert_eq!(speech.take_before(), b"one two");
        assert_eq!(speech.take_behind(), b"three");
        assert!(speech.any() && speech.take_unframed());
        assert!(!speech.any() && !speech.take_unframed());
        assert!(speech.take_before().is_empty() && speech.take_behind().is_empty());
    }

    #[test]
    fn what_waits_for_a_slow_client_has_a_bound() {
        let speech = Speech::default();
        speech.before(&[b'a'; PENDING]).unwrap();
        assert_eq!(speech.before(b"b"), Err(Dropped::Full));
        assert_eq!(speech.take_before().len(), PENDING);
        assert_eq!(speech.before(b"b"), Ok(()));
    }

    #[test]
    fn the_answer_ends_what_may_come_before_it_and_waits_for_a_flush() {
        let speech = Speech::default();
        assert!(!speech.answer());
        assert_eq!(speech.before(b"late"), Err(Dropped::Late));
        let mut quiet = Box::pin(speech.quiet());
        assert!(quiet.as_mut().now_or_never().is_none() && speech.any());
        speech.flushed();
        assert!(quiet.as_mut().now_or_never().is_some() && !speech.any());
        speech.begin();
        assert_eq!(speech.before(b"next"), Ok(()));
        assert!(speech.answer());
    }
}
