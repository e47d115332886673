use std::time::Duration;

use super::*;
use http_body::Frame;
use proptest::prelude::*;

/// A body of these chunks. `None` stands for a poll that finds nothing yet.
#[derive(Debug)]
struct Script(VecDeque<Option<Vec<u8>>>);

impl Body for Script {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        match self.0.pop_front() {
            None => Poll::Ready(None),
            Some(None) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Some(chunk)) => Poll::Ready(Some(Ok(Frame::data(chunk.into())))),
        }
    }
}

fn source(chunks: &[Option<&[u8]>], keep: Option<usize>) -> Arc<ReplaySource<Script>> {
    let script = chunks.iter().map(|chunk| chunk.map(<[u8]>::to_vec));
    Arc::new(ReplaySource::new(Script(script.collect()), keep))
}

async fn take(attempt: &mut AttemptBody<Script>, frames: usize) -> Vec<u8> {
    let mut all = Vec::new();
    for _ in 0..frames {
        let Some(frame) = attempt.frame().await else {
            break;
        };
        all.extend_from_slice(&frame.unwrap().into_data().unwrap());
    }
    all
}

const IDLE: Duration = Duration::from_mins(1);

#[tokio::test(start_paused = true)]
async fn a_second_attempt_replays_and_goes_on_where_the_first_stopped() {
    let source = source(&[Some(b"ab"), None, Some(b"cd"), Some(b"ef")], Some(6));
    let mut first = source.attempt(IDLE).unwrap();
    assert_eq!(take(&mut first, 2).await, b"abcd");
    let mut second = source.attempt(IDLE).unwrap();
    assert_eq!(take(&mut second, 9).await, b"abcdef");
    assert!(source.finished());
    let mut third = source.attempt(IDLE).unwrap();
    assert_eq!(take(&mut third, 9).await, b"abcdef");
}

/// The client decides how its body is cut into chunks, but not how much memory that takes.
#[tokio::test(start_paused = true)]
async fn small_chunks_are_kept_together() {
    let whole: Vec<u8> = (0..50_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let each: Vec<_> = whole.chunks(1).map(Some).collect();
    let source = source(&each, Some(1 << 20));
    assert_eq!(take(&mut source.attempt(IDLE).unwrap(), 30_000).await, whole[..30_000]);
    assert_eq!(source.lock().kept.as_ref().unwrap().chunks.len(), 30_000_usize.div_ceil(TOGETHER));
    for _ in 0..2 {
        assert_eq!(take(&mut source.attempt(IDLE).unwrap(), usize::MAX).await, whole);
    }
    assert_eq!(source.lock().kept.as_ref().unwrap().chunks.len(), 50_000_usize.div_ceil(TOGETHER));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_lost_its_turn_fails_instead_of_ending_short() {
    let source = source(&[Some(b"ab"), Some(b"cd")], Some(64));
    let mut first = source.attempt(IDLE).unwrap();
    assert_eq!(take(&mut first, 1).await, b"ab");
    let _second = source.attempt(IDLE).unwrap();
    let error = first.frame().await.unwrap().unwrap_err();
    assert!(matches!(error, BodyError::Abandoned(_)));
}

#[tokio::test(start_paused = true)]
async fn a_body_is_read_ahead_as_far_as_it_may_be_kept() {
    let exact = source(&[Some(b"ab"), None, Some(b"cd")], Some(4));
    assert_eq!(exact.read_ahead(IDLE).await.unwrap().unwrap(), ("abcd".into(), None));
    let over = source(&[Some(b"ab"), Some(b"cde"), Some(b"f")], Some(4));
    assert!(over.read_ahead(IDLE).await.unwrap().is_none());
    assert_eq!(over.attempt(IDLE).err(), Some(NotReplayable));
}

#[tokio::test(start_paused = true)]
async fn one_byte_over_the_limit_is_not_kept() {
    let exact = source(&[Some(b"abcd")], Some(4));
    assert_eq!(take(&mut exact.attempt(IDLE).unwrap(), 9).await, b"abcd");
    assert!(exact.replayable());
    let over = source(&[Some(b"abcd"), Some(b"e")], Some(4));
    assert_eq!(take(&mut over.attempt(IDLE).unwrap(), 9).await, b"abcde");
    assert_eq!(over.attempt(IDLE).err(), Some(NotReplayable));
}

#[tokio::test(start_paused = true)]
async fn what_nobody_has_read_can_be_sent_without_being_kept() {
    let source = source(&[Some(b"ab")], None);
    drop(source.attempt(IDLE).unwrap());
    let mut second = source.attempt(IDLE).unwrap();
    assert_eq!(take(&mut second, 9).await, b"ab");
    assert_eq!(source.attempt(IDLE).err(), Some(NotReplayable));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stalls_fails_after_the_bound() {
    struct Never;
    impl Body for Never {
        type Data = Bytes;
        type Error = std::io::Error;
        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
            Poll::Pending
        }
    }
    let source = Arc::new(ReplaySource::new(Never, None));
    let begun = tokio::time::Instant::now();
    let error = source.attempt(IDLE).unwrap().frame().await.unwrap();
    assert!(matches!(error, Err(BodyError::Stalled(IDLE))));
    assert_eq!(begun.elapsed(), IDLE);
}

#[tokio::test(start_paused = true)]
async fn trailers_come_behind_every_attempt_and_only_those_that_may_pass() {
    let fields = [("x-sum", "1"), ("authorization", "z")];
    let fields = fields.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    let frames: [Result<_, std::io::Error>; 2] =
        [Ok(Frame::data("ab".into())), Ok(Frame::trailers(HeaderMap::from_iter(fields)))];
    let stream = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
    let source = Arc::new(ReplaySource::new(stream, Some(64)));
    let (bytes, trailers) = source.read_ahead(IDLE).await.unwrap().unwrap();
    assert_eq!((bytes, trailers.unwrap().len()), ("ab".into(), 1));
    for _ in 0..2 {
        let whole = source.attempt(IDLE).unwrap().collect().await.unwrap();
        let trailers = whole.trailers().unwrap();
        assert_eq!((trailers.len(), &trailers["x-sum"]), (1, &"1".parse().unwrap()));
        assert_eq!(whole.to_bytes(), "ab");
    }
}

proptest! {
    /// However the body is cut into chunks, and wherever earlier attempts stopped, the last attempt sends
    /// exactly what the client sent.
    #[test]
    fn any_interleaving_replays_the_exact_bytes(
        chunks in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 1..20)), 0..20),
        stops in prop::collection::vec(0_usize..12, 0..5),
    ) {
        let whole: Vec<u8> = chunks.iter().flatten().flatten().copied().collect();
        let source = Arc::new(ReplaySource::new(Script(chunks.into()), Some(1024)));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            for stop in stops {
                let sent = take(&mut source.attempt(IDLE).unwrap(), stop).await;
                prop_assert!(whole.starts_with(&sent));
            }
            let sent = take(&mut source.attempt(IDLE).unwrap(), 64).await;
            prop_assert_eq!(sent, whole);
            Ok(())
        })?;
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_wants_is_read_as_far_as_it_is_there() {
    let here = source(&[Some(b"ab"), Some(b"cd")], Some(64));
    let mut attempt = here.attempt(IDLE).unwrap();
    assert_eq!(take(&mut attempt, 1).await, b"ab");
    assert!(here.read_out() && here.finished());
    assert!(attempt.frame().await.unwrap().is_err(), "what it did not send is gone");
    let later = source(&[Some(b"ab"), None, Some(b"cd")], None);
    assert!(!later.read_out() && !later.finished());
    let large = vec![0; READ_OUT];
    let large = source(&[Some(&large), Some(b"b")], None);
    assert!(!large.read_out());
}
