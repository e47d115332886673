//! HTTP/2's numbers, the same towards clients and towards upstreams.
//!
//! The sizes. A stream's window is 64 KiB: what a client may send ahead of an upstream that reads slowly,
//! and so the most that is held of one upload. The connection's window is that of all its streams together,
//! so that uploads which stand still cannot take the window from one that moves.

/// How much one stream may be ahead, in bytes. The same towards upstreams.
pub(crate) const WINDOW: u32 = 64 * 1024;

/// How many requests one connection to an upstream carries at most, whatever it takes.
pub(crate) const STREAMS: u32 = 100;

/// The window of a connection with this many streams, at most what the protocol has (RFC 9113 §6.9.1).
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
