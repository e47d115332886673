//! Finds the heads of frames in a stream of bytes (RFC 9113 §4.1), however the stream is cut.

/// The size of a frame's head.
const HEAD: usize = 9;
/// The same for `RST_STREAM`, with the error code that follows the head.
const RESET: usize = HEAD + 4;
/// The size of the preface that a client sends first (RFC 9113 §3.4).
const PREFACE: usize = 24;

/// The types of frames that matter here (RFC 9113 §6).
pub(super) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const CONTINUATION: u8 = 9;
}

const ACK: u8 = 0x1;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct Frames {
    /// The head of the current frame.
    head: [u8; RESET],
    /// How many bytes of it are present.
    have: usize,
    /// How many bytes to skip before the next head.
    skip: usize,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    flags: u8,
    pub(super) stream: u32,
    /// The length of the payload.
    pub(super) length: usize,
    /// The error code of an `RST_STREAM`.
    pub(super) reason: u32,
}

impl Frames {
    /// The bytes that a client sends.
    pub(super) const fn of_client() -> Self {
        Self { head: [0; RESET], have: 0, skip: PREFACE }
    }

    /// The bytes that a server sends.
    pub(super) const fn of_server() -> Self {
        Self { head: [0; RESET], have: 0, skip: 0 }
    }

    /// Scans the next `bytes`, and calls `seen` for each frame whose head is complete.
    pub(super) fn pass(&mut self, mut bytes: &[u8], mut seen: impl FnMut(Frame)) {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
            if let (0, Some(head)) = (self.have, bytes.first_chunk()) {
                let frame = Frame::of(head);
                self.skip = HEAD + frame.length;
                seen(frame);
                continue;
            }
            let Some((&byte, rest)) = bytes.split_first() else {
                return;
            };
            if let Some(place) = self.head.get_mut(self.have) {
                *place = byte;
            }
            self.have += 1;
            bytes = rest;
            if let Some(frame) = self.whole() {
                self.skip = (HEAD + frame.length).saturating_sub(self.have);
                self.have = 0;
                seen(frame);
            }
        }
    }

    /// The frame, if its head is complete.
    fn whole(&self) -> Option<Frame> {
        let frame = Frame::of(&self.head);
        let needs = if frame.resets() { RESET } else { HEAD };
        (self.have >= needs).then_some(frame)
    }
}

impl Frame {
    /// The frame that begins with these bytes. They may be longer than its head.
    fn of(head: &[u8; RESET]) -> Self {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3, r0, r1, r2, r3] = *head;
        let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        let stream = u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]);
        let mut frame = Self { kind, flags, stream, length, reason: 0 };
        if frame.resets() {
            frame.reason = u32::from_be_bytes([r0, r1, r2, r3]);
        }
        frame
    }

    /// Whether it is an `RST_STREAM` as it should be.
    const fn resets(self) -> bool {
        self.kind == kind::RST_STREAM && self.length == RESET - HEAD
    }

    /// Whether it ends a header block.
    pub(super) const fn ends_fields(self) -> bool {
        self.flags & END_HEADERS != 0
    }

    /// Whether it may be the first of a connection (RFC 9113 §3.4).
    pub(super) const fn may_be_first(self) -> bool {
        self.kind == kind::SETTINGS && self.flags & ACK == 0
    }

    /// Whether it is part of a message. Other frames are only about the connection.
    pub(super) const fn is_of_message(self) -> bool {
        match self.kind {
            kind::HEADERS => true,
            kind::DATA => self.length > 0 || self.flags & END_STREAM != 0,
            _ => false,
        }
    }

    /// Whether the library limits frames of this type, or closes the connection after the first.
    pub(super) const fn is_limited_below(self) -> bool {
        matches!(self.kind, kind::PUSH_PROMISE | kind::GOAWAY | kind::CONTINUATION)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A frame as bytes.
    pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        frame
    }

    fn passed(frames: &mut Frames, pieces: &[&[u8]]) -> Vec<Frame> {
        let mut seen = Vec::new();
        for piece in pieces {
            frames.pass(piece, |frame| seen.push(frame));
        }
        seen
    }

    #[test]
    fn frames_are_found_behind_the_preface_and_behind_each_other() {
        let bytes = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            frame(4, 0, 0, &[0; 6]),
            frame(1, END_HEADERS | END_STREAM, 1, b"head"),
            frame(3, 0, 0x8000_0001, &[0, 0, 0, 8]),
            frame(0, 0, 3, b""),
        ];
        let seen = passed(&mut Frames::of_client(), &[&bytes.concat()]);
        let kinds: Vec<_> = seen.iter().map(|frame| (frame.kind, frame.stream)).collect();
        assert_eq!(kinds, [(4, 0), (1, 1), (3, 1), (0, 3)]);
        assert_eq!((seen[2].reason, seen[2].length), (8, 4));
        assert!(seen[1].ends_fields() && seen[1].is_of_message());
        assert!(!seen[3].is_of_message() && !seen[0].is_of_message());
    }

    #[test]
    fn a_reset_of_another_length_is_a_frame_like_any_other() {
        let bytes = [frame(3, 0, 1, &[0; 5]), frame(6, 0, 0, &[0; 8])].concat();
        let seen = passed(&mut Frames::of_server(), &[&bytes]);
        assert_eq!(seen.iter().map(|frame| frame.kind).collect::<Vec<_>>(), [3, 6]);
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(
            frames in prop::collection::vec(
                (0..12_u8, any::<u8>(), 0..9_u32, prop::collection::vec(any::<u8>(), 0..20)), 0..12),
            cuts in prop::collection::vec(any::<usize>(), 0..20),
        ) {
            let bytes: Vec<u8> = frames
                .iter()
                .flat_map(|(kind, flags, stream, payload)| frame(*kind, *flags, *stream, payload))
                .collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
            let seen = passed(&mut Frames::of_server(), &pieces);
            prop_assert_eq!(seen.len(), frames.len());
            prop_assert_eq!(seen, passed(&mut Frames::of_server(), &[&bytes]));
        }
    }
}
