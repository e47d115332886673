//! What is counted, what is told, and what is too much.

use h2::Reason;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{Instant, sleep};

use super::*;
use crate::proxy::h2::frames::tests::frame;
use crate::proxy::h2::guard::FLOOD_INTERVAL;
use crate::proxy::h2::traffic::Violation;
use crate::proxy::io::failed_write::WRITE_FAILURE_GRACE;

#[tokio::test(start_paused = true)]
async fn a_failed_write_waits_until_all_is_read() {
    let (near, mut far) = duplex(64);
    far.write_all(b"answer").await.unwrap();
    drop(far);
    let mut wire = GuardedIo::of_server(near, 0);
    let mut polled = poll_once(&mut wire);
    assert!(polled.is_pending());
    let mut read = [0; 6];
    wire.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"answer");
    polled = poll_once(&mut wire);
    assert!(polled.is_pending());
    assert_eq!(wire.read(&mut read).await.unwrap(), 0);
    polled = poll_once(&mut wire);
    assert!(matches!(polled, Poll::Ready(Err(_))));
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_does_not_wait_for_ever() {
    let (near, mut far) = duplex(64);
    far.write_all(b"unread").await.unwrap();
    drop(far);
    let mut wire = GuardedIo::of_server(near, 0);
    let begun = Instant::now();
    wire.write_all(b"x").await.unwrap_err();
    assert_eq!(begun.elapsed(), WRITE_FAILURE_GRACE);
}

fn poll_once(wire: &mut GuardedIo<DuplexStream>) -> Poll<io::Result<usize>> {
    let mut cx = Context::from_waker(std::task::Waker::noop());
    Pin::new(wire).poll_write(&mut cx, b"x")
}

#[tokio::test]
async fn bytes_are_counted_both_ways() {
    let (near, mut far) = duplex(64);
    let mut wire = GuardedIo::of_server(near, 0);
    let traffic = wire.traffic();
    let mark = traffic.mark();
    assert!(!traffic.wrote_since(mark) && !traffic.read_since(mark));
    wire.write_all(b"abc").await.unwrap();
    assert!(traffic.wrote_since(mark) && !traffic.read_since(mark));
    far.write_all(b"de").await.unwrap();
    wire.read_exact(&mut [0; 2]).await.unwrap();
    assert!(traffic.wrote_since(mark) && traffic.read_since(mark));
}

#[test]
fn what_is_read_is_looked_at_in_slices() {
    let (near, mut far) = duplex(1 << 20);
    let mut wire = GuardedIo::of_server(near, 0);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let much = frame(0, 0, 1, &vec![0; 199_991]);
    assert!(Pin::new(&mut far).poll_write(&mut cx, &much).is_ready());
    let mut room = vec![0; 16 * 1024];
    let mut slices = vec![0];
    // Each but the last ends with a wish to be asked again.
    for _ in 0..20 {
        let mut buf = ReadBuf::new(&mut room);
        match Pin::new(&mut wire).poll_read(&mut cx, &mut buf) {
            Poll::Ready(read) => {
                read.unwrap();
                *slices.last_mut().unwrap() += buf.filled().len();
            }
            Poll::Pending => slices.push(0),
        }
    }
    slices.retain(|slice| *slice > 0);
    assert_eq!(slices, [SLICE, SLICE, SLICE, 200_000 - 3 * SLICE]);
}

/// A server's end that has read `bytes` behind the preface.
fn heard(wire: &mut GuardedIo<DuplexStream>, bytes: &[u8]) -> bool {
    lock(&wire.0).received(bytes);
    wire.traffic().violation() == Some(Violation::Flood)
}

fn server(bound: usize) -> GuardedIo<DuplexStream> {
    let wire = GuardedIo::of_client(duplex(1).0, bound);
    lock(&wire.0).received(&[0; 24]);
    lock(&wire.0).received(&frame(4, 0, 0, b""));
    wire
}

#[tokio::test(start_paused = true)]
async fn frames_that_bring_nothing_are_a_flood_where_they_come_too_fast() {
    let ping = frame(6, 0, 0, &[0; 8]);
    let mut wire = server(0);
    assert!(!heard(&mut wire, &ping.repeat(1000)));
    assert!(heard(&mut wire, &ping), "one more than that within a second");
    let mut wire = server(0);
    for _ in 0..100 {
        assert!(!heard(&mut wire, &ping.repeat(1000)), "a thousand a second");
        sleep(FLOOD_INTERVAL).await;
    }
    let mut wire = server(0);
    let head = frame(1, 5, 1, b"");
    for _ in 0..100 {
        assert!(!heard(&mut wire, &[ping.repeat(4), head.clone()].concat().repeat(100)));
    }
    let mut wire = server(0);
    let data = frame(0, 0, 1, b"x");
    for _ in 0..1000 {
        assert!(
            !heard(&mut wire, &ping.repeat(4)),
            "for what is sent a client has something to say"
        );
        lock(&wire.0).sent(&data);
    }
}

/// RFC 9113 §3.4. The library would serve it.
#[test]
fn a_client_whose_first_frame_is_not_settings_is_not_read() {
    let preface = [0; 24];
    let settings = frame(4, 0, 0, &[0; 6]);
    let (head, ping) = (frame(1, 5, 1, b"head"), frame(6, 0, 0, &[0; 8]));
    let acknowledged = frame(4, 1, 0, b"");
    for (first, is_read) in [(settings, true), (head, false), (ping, false), (acknowledged, false)]
    {
        let (near, mut far) = duplex(1 << 10);
        let mut wire = GuardedIo::of_client(near, 0);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut read = |wire: &mut GuardedIo<DuplexStream>, bytes: &[u8]| {
            assert!(Pin::new(&mut far).poll_write(&mut cx, bytes).is_ready());
            let mut room = [0; 100];
            let mut buf = ReadBuf::new(&mut room);
            let polled = Pin::new(wire).poll_read(&mut cx, &mut buf);
            (polled.is_ready(), buf.filled().len())
        };
        assert_eq!(read(&mut wire, &preface), (true, 24));
        let all = if is_read { (true, first.len()) } else { (false, 0) };
        assert_eq!(read(&mut wire, &first), all, "{first:?}");
        let violation = (!is_read).then_some(Violation::NoSettings);
        assert_eq!(wire.traffic().violation(), violation);
        assert_eq!(read(&mut wire, b"more").0, is_read);
    }
}

#[tokio::test]
async fn blocks_that_are_too_large_are_remembered_and_few_of_them() {
    let mut wire = server(1000);
    let large = |stream: u32| {
        let pieces = [frame(1, 0, stream, &[0; 900]), frame(9, 4, stream, &[0; 900])];
        pieces.concat()
    };
    heard(&mut wire, &large(1));
    heard(&mut wire, &frame(1, 4, 3, &[0; 1000]));
    let traffic = wire.traffic();
    assert!(traffic.is_large(1) && !traffic.is_large(3));
    for stream in 1..16 {
        assert!(!heard(&mut wire, &large(2 * stream + 3)));
    }
    assert!(heard(&mut wire, &large(99)));
}

#[tokio::test]
async fn streams_that_are_ended_before_anybody_has_them_were_refused() {
    let mut wire = server(1000);
    let heads = [1, 3, 5, 7, 9].map(|stream| frame(1, 5, stream, b""));
    heard(&mut wire, &heads.concat());
    // Trailers open nothing.
    heard(&mut wire, &frame(1, 5, 7, b""));
    let reset = |stream, reason| frame(3, 0, stream, &[0, 0, 0, reason]);
    lock(&wire.0).sent(&[reset(1, 1), frame(1, 5, 5, b""), reset(5, 1), reset(9, 7)].concat());
    let traffic = wire.traffic();
    let wanted = [Some(Reason::PROTOCOL_ERROR), None, Some(Reason::REFUSED_STREAM)];
    assert_eq!(traffic.take_refused(), wanted);
    traffic.accepted(7);
    // What is said on those that somebody has is theirs.
    lock(&wire.0).sent(&[frame(1, 4, 3, b""), reset(3, 8), frame(1, 5, 7, b"")].concat());
    assert_eq!(traffic.take_refused(), []);
}

/// Notes each write, and accepts what `room` says.
struct Writes {
    sizes: Vec<usize>,
    room: usize,
}

impl AsyncWrite for Writes {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let size = buf.len().min(self.room);
        if size == 0 {
            return Poll::Pending;
        }
        self.room -= size;
        self.sizes.push(size);
        Poll::Ready(Ok(size))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A gathering end over a socket with `room`, to which the library hands a frame of a kilobyte `times` times.
fn gathering(room: usize, times: usize) -> (GuardedIo<Writes>, Outlet<Writes>, usize) {
    let mut wire = GuardedIo::of_server(Writes { sizes: Vec::new(), room }, 0);
    let outlet = wire.outlet();
    outlet.gather();
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let mut taken = 0;
    for _ in 0..times {
        let frame = frame(0, 0, 1, &[0; 1015]);
        let (head, data) = frame.split_at(9);
        let parts = [IoSlice::new(head), IoSlice::new(data)];
        if Pin::new(&mut wire).poll_write_vectored(&mut cx, &parts).is_ready() {
            taken += 1;
        }
        assert!(Pin::new(&mut wire).poll_flush(&mut cx).is_ready());
    }
    (wire, outlet, taken)
}

#[test]
fn what_a_turn_writes_leaves_in_one_write() {
    let (wire, outlet, taken) = gathering(usize::MAX, 20);
    let traffic = wire.traffic();
    let mark = traffic.mark();
    assert!(taken == 20 && lock(&wire.0).io.sizes.is_empty() && traffic.flushes() == 0);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    for _ in 0..2 {
        outlet.flush(&mut cx);
        assert_eq!(lock(&wire.0).io.sizes, [20 * 1024]);
        assert!(traffic.wrote_since(mark) && traffic.flushes() == 1);
        assert_eq!(lock(&wire.0).gathered.capacity(), 0, "an idle connection holds no buffer");
    }
}

#[test]
fn what_is_gathered_has_a_bound_and_waits_for_room() {
    let (wire, outlet, taken) = gathering(100, 100);
    assert_eq!(taken, GATHERED / 1024, "no more than that waits");
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert_eq!(lock(&wire.0).io.sizes, [100], "and it is written when more comes");
    outlet.flush(&mut cx);
    assert_eq!(wire.traffic().flushes(), 0);
    lock(&wire.0).io.room = usize::MAX;
    outlet.flush(&mut cx);
    assert_eq!(lock(&wire.0).io.sizes, [100, GATHERED - 100]);
    assert!(wire.traffic().flushes() == 1 && wire.traffic().unblocked_at().is_some());
}

#[test]
fn what_waits_for_room_keeps_no_more_than_it_needs() {
    let (wire, outlet, _) = gathering(10 * 1024 - 1, 10);
    outlet.flush(&mut Context::from_waker(std::task::Waker::noop()));
    let wire = lock(&wire.0);
    assert_eq!((wire.gathered.len(), wire.gathered.capacity()), (1, 1));
}

#[test]
fn a_shutdown_writes_what_was_gathered() {
    let (mut wire, _outlet, _) = gathering(usize::MAX, 1);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert!(Pin::new(&mut wire).poll_shutdown(&mut cx).is_ready());
    assert_eq!(lock(&wire.0).io.sizes, [1024]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_of_what_was_gathered_waits_until_all_is_read() {
    let (near, mut far) = duplex(64);
    far.write_all(b"answer").await.unwrap();
    drop(far);
    let mut wire = GuardedIo::of_server(near, 0);
    let outlet = wire.outlet();
    outlet.gather();
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert!(Pin::new(&mut wire).poll_write(&mut cx, b"x").is_ready());
    outlet.flush(&mut cx);
    assert!(Pin::new(&mut wire).poll_flush(&mut cx).is_pending(), "the failure is held back");
    let mut read = Vec::new();
    wire.read_to_end(&mut read).await.unwrap();
    assert_eq!(read, b"answer");
    assert!(matches!(Pin::new(&mut wire).poll_flush(&mut cx), Poll::Ready(Err(_))));
}
