//! The keys of session tickets (RFC 8446 §4.6.1, RFC 5077), with which clients resume a session without a full handshake.
//!
//! A ticket holds the session itself, encrypted, so the proxy remembers nothing of a client. All workers share the keys of a
//! listener. They last over reloads as long as neither its certificate nor the authorities of its clients change: a ticket
//! says that its client was let in, which must not be believed where others are let in. The library replaces a key every six
//! hours, and accepts tickets of the one before it.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustls::Error;
use rustls::crypto::ring::Ticketer;
use rustls::server::ProducesTickets;

use super::Fingerprint;

type Known = Vec<(Fingerprint, Weak<dyn ProducesTickets>)>;

/// The keys in use. While a new configuration is read, those of the old one are.
static KNOWN: Mutex<Known> = Mutex::new(Vec::new());

/// The keys of the listeners with this `mark`, which stands for their certificate and for the authorities of their clients.
///
/// # Errors
/// When the system provides no randomness.
pub(super) fn shared(mark: Fingerprint) -> Result<Arc<dyn ProducesTickets>, Error> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|(_, keys)| keys.strong_count() > 0);
    let same = known.iter().find(|(of, _)| *of == mark).and_then(|(_, keys)| keys.upgrade());
    if let Some(same) = same {
        return Ok(same);
    }
    let keys = Ticketer::new()?;
    known.push((mark, Arc::downgrade(&keys)));
    Ok(keys)
}
