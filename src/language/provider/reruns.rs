//! What the host has to say about running work again.

/// Decides whether the work of an execution may be run again at present.
pub trait RerunGate: Send + Sync {
    /// Why it may not: a word for `details.reason`.
    fn closed(&self) -> Option<&'static str>;
}
