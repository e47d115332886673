//! What a connection is set to.

use super::settings::OwnSettings;

/// How large a list of fields may be, unless it is set.
const MAX_LIST: usize = 1 << 20;
/// How many bytes of one stream's data may wait to be sent, unless it is set.
const MAX_SEND_BUFFER: usize = 400 * 1024;
/// How many requests may be sent before the other side says how many it accepts.
const FIRST_REQUESTS: usize = 100;

/// What a connection is set to. Each size is in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Config {
    /// How many streams a client may have open.
    pub(super) max_concurrent_streams: Option<u32>,
    /// The window of each stream.
    pub(super) window: Option<u32>,
    pub(super) connection_window: Option<u32>,
    /// How much of one stream's data may wait to be sent.
    pub(super) max_send_buffer_size: usize,
    /// How large a list of fields may be.
    pub(super) max_header_list_size: Option<u32>,
    /// How many requests may be sent before the other side says how many it accepts.
    pub(super) initial_max_send_streams: usize,
}

impl Config {
    /// Everything has its default.
    pub(super) const fn new() -> Self {
        Self {
            max_concurrent_streams: None,
            window: None,
            connection_window: None,
            max_send_buffer_size: MAX_SEND_BUFFER,
            max_header_list_size: None,
            initial_max_send_streams: FIRST_REQUESTS,
        }
    }

    /// The settings to send.
    pub(super) const fn own(&self, client: bool) -> OwnSettings {
        OwnSettings {
            disable_push: client,
            max_concurrent_streams: if client { None } else { self.max_concurrent_streams },
            initial_window_size: self.window,
            max_header_list_size: self.max_header_list_size,
        }
    }

    /// How large a list of fields may be.
    pub(super) fn list_size(&self) -> usize {
        self.max_header_list_size.map_or(MAX_LIST, |size| size as usize)
    }

    /// How many streams a client may have open.
    pub(super) fn max_concurrent(&self) -> usize {
        self.max_concurrent_streams.map_or(usize::MAX, |streams| streams as usize)
    }
}
