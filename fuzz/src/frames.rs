//! Frames of HTTP/2.

use mwl_proxy::proxy::testing::http2;

/// How many bytes may be sent for what was received: a body of 70,000 bytes for each of ten streams, and short answers.
const MOST: usize = 1 << 20;

/// Any bytes from a client to our server, and from a server to our client.
///
/// # Panics
/// When one panics or does not end, or sends what are no frames.
pub fn h2_frames(data: &[u8]) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        frames(&http2::served(data).await);
        let said = http2::asked(data).await;
        frames(said.get(24..).unwrap_or_default());
    });
}

/// Reads frames to their end. The last one may break off.
fn frames(mut bytes: &[u8]) {
    assert!(bytes.len() <= MOST);
    while let [l0, l1, l2, kind, _, s0, _, _, _, ..] = bytes {
        let length = u32::from_be_bytes([0, *l0, *l1, *l2]) as usize;
        assert!(length <= 16_384 && *kind < 10 && *s0 < 0x80, "{length} {kind}");
        bytes = bytes.get(9 + length..).unwrap_or_default();
    }
}

/// Frames of a usual conversation, of either side.
pub fn seeds() -> Vec<Vec<u8>> {
    let settings = frame(4, 0, 0, &[0, 4, 0, 1, 0, 0]);
    let head = b"\x82\x86\x84\x41\x01t".as_slice();
    let post = b"\x83\x86\x84\x41\x01t\x0f\x0d\x015".as_slice();
    let answer = b"\x88\x40\x01x\x01y".as_slice();
    let client = [
        settings.clone(),
        frame(1, 5, 1, head),
        frame(1, 4, 3, post),
        frame(0, 1, 3, b"hello"),
        frame(8, 0, 0, &[0, 1, 0, 0]),
        frame(8, 0, 1, &[0, 0, 1, 0]),
        frame(1, 0, 5, &head[..3]),
        frame(9, 4, 5, &head[3..]),
        frame(0, 8, 5, &[1, b'x', 0]),
        frame(3, 0, 5, &[0, 0, 0, 8]),
        frame(6, 0, 0, &[7; 8]),
        frame(4, 1, 0, &[]),
        frame(2, 0, 7, &[0, 0, 0, 3, 9]),
        frame(7, 0, 0, &[0; 8]),
    ];
    let server = [
        settings,
        frame(4, 1, 0, &[]),
        frame(1, 4, 1, b"\x08\x03100"),
        frame(1, 4, 1, answer),
        frame(0, 0, 1, b"hello"),
        frame(1, 5, 1, b"\x40\x05x-sum\x011"),
        frame(8, 0, 0, &[0, 1, 0, 0]),
        frame(8, 0, 3, &[0, 0, 1, 0]),
        frame(1, 5, 3, answer),
        frame(3, 0, 5, &[0, 0, 0, 7]),
        frame(7, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0]),
    ];
    vec![client.concat(), server.concat()]
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}
