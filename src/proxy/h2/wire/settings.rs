//! SETTINGS (RFC 9113 §6.5).

use bytes::BytesMut;

use super::error::{Fault, Reason};
use super::frame::{MAX_PAYLOAD, kind, put_head};

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;

/// The window of a stream and of a connection, unless a side says otherwise (RFC 9113 §6.9.2).
pub(super) const DEFAULT_WINDOW: u32 = 65_535;
/// The largest window (RFC 9113 §6.9.1).
pub(super) const MAX_WINDOW: u32 = (1 << 31) - 1;

/// What the other side has set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) header_table_size: Option<u32>,
    pub(super) max_concurrent_streams: Option<u32>,
    pub(super) initial_window_size: Option<u32>,
}

impl Settings {
    /// Reads and checks a payload. `from_client`: a client sent it.
    pub(super) fn parse(payload: &[u8], from_client: bool) -> Result<Self, Fault> {
        let wrong = |what| Err(Fault::Connection(Reason::PROTOCOL_ERROR, what));
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(Fault::Connection(Reason::FRAME_SIZE_ERROR, "SETTINGS of a wrong size"));
        }
        let mut read = Self::default();
        for [i0, i1, v0, v1, v2, v3] in settings {
            let value = u32::from_be_bytes([*v0, *v1, *v2, *v3]);
            match u16::from_be_bytes([*i0, *i1]) {
                HEADER_TABLE_SIZE => read.header_table_size = Some(value),
                // A server may not push to us, and may not offer it (RFC 9113 §6.5.2).
                ENABLE_PUSH if value > u32::from(from_client) => return wrong("ENABLE_PUSH"),
                MAX_CONCURRENT_STREAMS => read.max_concurrent_streams = Some(value),
                INITIAL_WINDOW_SIZE if value > MAX_WINDOW => {
                    return Err(Fault::Connection(
                        Reason::FLOW_CONTROL_ERROR,
                        "INITIAL_WINDOW_SIZE is too large",
                    ));
                }
                INITIAL_WINDOW_SIZE => read.initial_window_size = Some(value),
                MAX_FRAME_SIZE if !(MAX_PAYLOAD..1 << 24).contains(&(value as usize)) => {
                    return wrong("MAX_FRAME_SIZE");
                }
                _ => {}
            }
        }
        Ok(read)
    }
}

/// What we set. Nothing is sent of what is `None`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnSettings {
    pub(super) disable_push: bool,
    pub(super) max_concurrent_streams: Option<u32>,
    pub(super) initial_window_size: Option<u32>,
    pub(super) max_header_list_size: Option<u32>,
}

impl OwnSettings {
    /// Appends the frame.
    pub(super) fn put(&self, out: &mut BytesMut) {
        let all = [
            (ENABLE_PUSH, self.disable_push.then_some(0)),
            (MAX_CONCURRENT_STREAMS, self.max_concurrent_streams),
            (INITIAL_WINDOW_SIZE, self.initial_window_size),
            (MAX_HEADER_LIST_SIZE, self.max_header_list_size),
        ];
        let sent = all.iter().filter(|(_, value)| value.is_some()).count();
        put_head(out, 6 * sent, kind::SETTINGS, 0, 0);
        for (setting, value) in all {
            if let Some(value) = value {
                out.extend_from_slice(&setting.to_be_bytes());
                out.extend_from_slice(&value.to_be_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(setting: u16, value: u32) -> Vec<u8> {
        [&setting.to_be_bytes()[..], &value.to_be_bytes()].concat()
    }

    #[test]
    fn settings_are_checked() {
        let refused = [
            (vec![0; 5], Reason::FRAME_SIZE_ERROR),
            (one(ENABLE_PUSH, 2), Reason::PROTOCOL_ERROR),
            (one(INITIAL_WINDOW_SIZE, 1 << 31), Reason::FLOW_CONTROL_ERROR),
            (one(MAX_FRAME_SIZE, 16_383), Reason::PROTOCOL_ERROR),
            (one(MAX_FRAME_SIZE, 1 << 24), Reason::PROTOCOL_ERROR),
        ];
        for (payload, reason) in refused {
            let fault = Settings::parse(&payload, true).unwrap_err();
            assert!(matches!(fault, Fault::Connection(told, _) if told == reason), "{payload:?}");
        }
        assert!(Settings::parse(&one(ENABLE_PUSH, 1), true).is_ok());
        assert!(Settings::parse(&one(ENABLE_PUSH, 1), false).is_err());
        let unknown = one(0x99, u32::MAX);
        assert_eq!(Settings::parse(&unknown, true), Ok(Settings::default()));
    }

    #[test]
    fn the_last_value_of_a_setting_counts() {
        let payload = [one(4, 1), one(3, 7), one(4, 2), one(1, 0), one(5, 20_000)].concat();
        let wanted = Settings {
            header_table_size: Some(0),
            max_concurrent_streams: Some(7),
            initial_window_size: Some(2),
        };
        assert_eq!(Settings::parse(&payload, false), Ok(wanted));
    }

    #[test]
    fn what_we_set_can_be_read() {
        let own = OwnSettings { initial_window_size: Some(9), ..OwnSettings::default() };
        let mut out = BytesMut::new();
        own.put(&mut out);
        let read = Settings::parse(&out[9..], false).unwrap();
        assert_eq!(read.initial_window_size, Some(9));
    }
}
