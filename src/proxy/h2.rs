//! HTTP/2's limits, the same towards clients and upstreams.
//!
//! The sizes: a stream's window is 64 KiB. That is how far a client may be ahead of an upstream that reads
//! slowly, and so the most that is held of one upload. The connection's window covers all of its streams, so
//! that stalled uploads cannot use up the window of one that makes progress.

/// The window of a stream, in bytes. The same towards upstreams.
pub(crate) const WINDOW: u32 = 64 * 1024;

/// The most requests on one connection to an upstream, whatever the upstream allows.
pub(crate) const STREAMS: u32 = 100;

/// The window of a connection with this many streams, up to the protocol's maximum (RFC 9113 §6.9.1).
pub(crate) fn connection_window(streams: u32) -> u32 {
    const LARGEST: u32 = (1 << 31) - 1;
    WINDOW.saturating_mul(streams).min(LARGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_s_window_has_a_bound() {
        assert_eq!(connection_window(100), 100 * WINDOW);
        assert_eq!(connection_window(u32::MAX), (1 << 31) - 1);
    }
}
