//! The cost of passing a request's body on, with and without keeping it for another attempt.
//!
//! Chunks are reference-counted, so keeping one copies nothing. The only allocations are those of the
//! list that keeps them.

#![expect(clippy::print_stdout, reason = "a bench says what it measured")]
#![expect(clippy::unwrap_used, reason = "a bench that cannot run ends")]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use criterion::Criterion;
use http_body::{Body, Frame};
use mwl_proxy::proxy::{AttemptBody, ReplaySource};

const CHUNKS: usize = 16;
const CHUNK: &[u8] = &[b'x'; 4096];
const STALL: Duration = Duration::from_mins(1);

/// A body that is ready as a whole.
struct There(VecDeque<Bytes>);

impl Body for There {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|chunk| Ok(Frame::data(chunk))))
    }
}

fn body() -> There {
    There((0..CHUNKS).map(|_| Bytes::from_static(CHUNK)).collect())
}

/// Reads an attempt to its end and returns the number of bytes.
fn send(mut attempt: AttemptBody<There>) -> usize {
    let mut cx = Context::from_waker(Waker::noop());
    let mut size = 0;
    while let Poll::Ready(Some(frame)) = Pin::new(&mut attempt).poll_frame(&mut cx) {
        size += frame.unwrap().into_data().map_or(0, |chunk| chunk.len());
    }
    size
}

/// Makes `count` attempts at a body that is kept up to `keep`, and returns the bytes of all of them.
fn attempts(body: There, keep: Option<usize>, count: usize) -> usize {
    let source = Arc::new(ReplaySource::new(body, keep));
    (0..count).map(|_| send(source.attempt(STALL).unwrap())).sum()
}

fn main() {
    let all = Some(CHUNKS * CHUNK.len());
    let cases = [
        // The source's own.
        ("64 KiB passed on", None, 1, 1),
        // And the list, which doubles.
        ("64 KiB kept", all, 1, 4),
        ("64 KiB kept and sent three times", all, 3, 4),
    ];
    let mut criterion = Criterion::default().configure_from_args();
    let mut wrong = Vec::new();
    for (name, keep, count, allocations) in cases {
        let there = body();
        let mut carried = 0;
        let counted = allocation_counter::measure(|| carried = attempts(there, keep, count));
        let counted = counted.count_total;
        assert_eq!(carried, count * CHUNKS * CHUNK.len(), "every attempt carries the whole body");
        println!("{name}: {counted} allocations");
        if counted > allocations {
            wrong.push(format!("{name}: {counted} allocations, more than {allocations}"));
        }
        criterion.bench_function(name, |bencher| {
            bencher.iter_batched(
                body,
                |body| black_box(attempts(body, keep, count)),
                criterion::BatchSize::SmallInput,
            );
        });
    }
    criterion.final_summary();
    assert!(wrong.is_empty(), "{}", wrong.join("; "));
}
