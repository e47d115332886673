//! The thread that posts spans.
//!
//! While the collector is away, one batch is held here and tried again and again, and everything behind it stays in the
//! queue. So an outage costs no spans until the queue is full; then those of the newest requests are dropped. At the end
//! of the process, and of a configuration, nothing waits any more: what cannot be posted then is lost.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, sleep, sleep_until};

use super::collector::{Collector, NotTaken};
use super::export::Counters;
use super::spans::EncodedSpans;
use crate::telemetry::limiter::LogLimiter;

/// Roughly how many spans one post contains: the spans of a request stay together.
const BATCH: usize = 512;

/// How long a span may wait for others.
const GATHER: Duration = Duration::from_secs(1);

/// How long the thread does not look at the queue while it gathers, at most, and for each place of the queue.
const NAP: Duration = Duration::from_millis(10);
const NAP_FOR_EACH: Duration = Duration::from_micros(5);

/// How much memory an empty batch keeps.
const KEPT: usize = 512 * 1024;

/// How long after a post that did not reach the collector the next one is made: at first, and at most. Each time it is
/// twice as long. Of each wait, a random part of up to a half is left out. The longest is short, because the queue may be full
/// within seconds, and a collector that is back takes it at once.
const FIRST_AGAIN: Duration = Duration::from_millis(500);
const LAST_AGAIN: Duration = Duration::from_secs(5);

/// The longest wait that a collector may ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(30);

/// Who is answered once everything before it was posted, or is lost. `None`: nobody hands anything over any more.
type Flush = Option<SyncSender<()>>;

/// The exporting thread.
#[derive(Debug)]
pub(super) struct ExportTask<C> {
    collector: C,
    counters: Counters,
    endpoint: Arc<str>,
    /// Whether the collector was away at the last post.
    away: bool,
    /// Limits how often the log says that it refused spans.
    refused: LogLimiter,
}

/// Spans that are posted together, as fields of `ScopeSpans`.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    /// How many there are.
    spans: usize,
}

/// What became of a batch.
enum Posted {
    /// It was taken, or refused for good.
    Done,
    /// The collector is away, and will be for at least this long.
    Away(Duration),
}

impl<C: Collector> ExportTask<C> {
    pub(super) fn new(collector: C, counters: Counters, endpoint: Arc<str>) -> Self {
        let refused = LogLimiter::new("The collector refused spans.", None);
        Self { collector, counters, endpoint, away: false, refused }
    }

    /// Runs until nobody can hand anything over.
    pub(super) async fn run(
        mut self,
        mut items: Receiver<EncodedSpans>,
        mut flushes: Receiver<SyncSender<()>>,
    ) {
        let mut batch = Batch::default();
        loop {
            let gathered = tokio::select! {
                biased;
                flush = flushes.recv() => Some(flush),
                () = batch.gather(&mut items) => None,
            };
            let flush = match gathered {
                None => self.deliver(&batch, &mut flushes).await,
                flush => flush,
            };
            let Some(flush) = flush else {
                batch.clear();
                continue;
            };
            self.give_up(std::mem::take(&mut batch), &mut items).await;
            let Some(done) = flush else { return };
            // The waiting thread may have given up.
            done.try_send(()).ok();
        }
    }

    /// Posts `batch` until the collector has answered, or until there is no time left to wait for that.
    async fn deliver(
        &mut self,
        batch: &Batch,
        flushes: &mut Receiver<SyncSender<()>>,
    ) -> Option<Flush> {
        let mut wait = FIRST_AGAIN;
        while let Posted::Away(least) = self.post(batch).await {
            let wanted = wait.mul_f64(1.0 - rand::random::<f64>() / 2.0);
            tokio::select! {
                biased;
                flush = flushes.recv() => return Some(flush),
                () = sleep(wanted.max(least.min(LONGEST_ASKED))) => {}
            }
            wait = wait.saturating_mul(2).min(LAST_AGAIN);
        }
        None
    }

    /// Posts `batch` and everything that waits, without waiting for a collector that is away.
    async fn give_up(&mut self, mut batch: Batch, items: &mut Receiver<EncodedSpans>) {
        loop {
            while batch.spans < BATCH
                && let Ok(next) = items.try_recv()
            {
                batch.push(next);
            }
            if batch.spans == 0 {
                return;
            }
            if let Posted::Away(_) = self.post(&batch).await {
                break;
            }
            batch = Batch::default();
        }
        while let Ok(next) = items.try_recv() {
            batch.push(next);
        }
        let (endpoint, spans) = (&*self.endpoint, batch.spans);
        self.counters.failed.inc_by(spans as u64);
        tracing::warn!(endpoint, spans, "The last spans are lost: the collector is away.");
    }

    async fn post(&mut self, batch: &Batch) -> Posted {
        let endpoint = &*self.endpoint;
        let spans = batch.spans;
        let posted = self.collector.post(&batch.bytes).await;
        let away = matches!(posted, Err(NotTaken { again: Some(_), .. }));
        let was_away = std::mem::replace(&mut self.away, away);
        if was_away && !away {
            tracing::info!(endpoint, "The collector is back.");
        }
        let NotTaken { why, again } = match posted {
            Ok(()) => {
                self.counters.exported.inc_by(spans as u64);
                return Posted::Done;
            }
            Err(not_taken) => not_taken,
        };
        let error = &*why;
        if let Some(least) = again {
            if !was_away {
                tracing::warn!(endpoint, error, "The collector is away: spans wait for it.");
            }
            return Posted::Away(least);
        }
        self.counters.failed.inc_by(spans as u64);
        if let Some(untold) = self.refused.admits(Instant::now()) {
            tracing::warn!(endpoint, error, spans, untold, "The collector refused spans.");
        }
        Posted::Done
    }
}

impl Batch {
    /// Adds what comes, until it is large enough or the first of it has waited long enough.
    async fn gather(&mut self, items: &mut Receiver<EncodedSpans>) {
        let Some(first) = items.recv().await else {
            // Nobody hands anything over any more, which a closed way to flush says too.
            return std::future::pending().await;
        };
        self.push(first);
        let until = Instant::now() + GATHER;
        let nap = NAP_FOR_EACH.saturating_mul(items.max_capacity().try_into().unwrap_or(u32::MAX));
        let nap = nap.min(NAP);
        loop {
            // Whoever hands something over that this thread waits for has to wake it, which costs more than the rest. So it
            // does not wait for a while, in which the queue cannot become full.
            if nap >= Duration::from_millis(1) && self.spans < BATCH {
                sleep(nap).await;
            }
            while self.spans < BATCH
                && let Ok(next) = items.try_recv()
            {
                self.push(next);
            }
            if self.spans >= BATCH {
                return;
            }
            let next = tokio::select! {
                next = items.recv() => next,
                () = sleep_until(until) => None,
            };
            let Some(next) = next else { return };
            self.push(next);
        }
    }

    fn push(&mut self, EncodedSpans { bytes, count }: EncodedSpans) {
        self.spans += count;
        self.bytes.extend(bytes);
    }

    fn clear(&mut self) {
        self.spans = 0;
        self.bytes.clear();
        // The memory of a burst must not stay.
        self.bytes.shrink_to(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;
    use std::sync::mpsc::sync_channel;

    use opentelemetry_proto::tonic::trace::v1::ScopeSpans;
    use prost::Message as _;
    use tokio::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::telemetry::record::tests::{answer, execution, traced};
    use crate::telemetry::trace::export::tests::{counters, tracer_of};
    use crate::telemetry::trace::export::{Tracer, Ways};

    /// Answers as scripted, then takes everything. Notes when it was asked, and with how many spans.
    #[derive(Clone, Debug, Default)]
    struct Scripted {
        answers: Arc<Mutex<VecDeque<Option<u64>>>>,
        asked: Arc<Mutex<Vec<(Instant, usize)>>>,
    }

    const AWAY: Option<u64> = Some(0);
    const REFUSED: Option<u64> = None;

    impl Collector for Scripted {
        async fn post(&self, spans: &[u8]) -> Result<(), NotTaken> {
            let spans = ScopeSpans::decode(spans).unwrap().spans;
            self.asked.lock().unwrap().push((Instant::now(), spans.len()));
            match self.answers.lock().unwrap().pop_front() {
                Some(again) => {
                    Err(NotTaken { why: "no".into(), again: again.map(Duration::from_secs) })
                }
                None => Ok(()),
            }
        }
    }

    impl Scripted {
        fn new(answers: impl IntoIterator<Item = Option<u64>>) -> Self {
            let answers = answers.into_iter().collect::<VecDeque<_>>();
            Self { answers: Arc::new(answers.into()), asked: Arc::default() }
        }

        /// The seconds between the posts, and how many spans each had.
        fn asked(&self) -> (Vec<f64>, Vec<usize>) {
            let asked = self.asked.lock().unwrap();
            let gaps = asked.windows(2).map(|two| (two[1].0 - two[0].0).as_secs_f64());
            (gaps.collect(), asked.iter().map(|(_, spans)| *spans).collect())
        }
    }

    /// A tracer whose queue holds this many requests, and the task that posts to `collector`.
    fn started(queue: usize, collector: Scripted) -> (Arc<Tracer>, Counters) {
        let counters = counters();
        let (tracer, Ways { items, flushes }) = tracer_of(1.0, queue, &counters);
        let task = ExportTask::new(collector, counters.clone(), "there".into());
        tokio::spawn(task.run(items, flushes));
        (tracer, counters)
    }

    /// Hands over this many requests of one span.
    fn deliver(tracer: &Tracer, count: usize) {
        let request = traced(tracer.context(None, [7; 24]));
        let execution = execution(request, true, answer(200, Instant::now(), 1), 0);
        (0..count).for_each(|_| tracer.deliver(&execution));
    }

    fn counted(counters: &Counters) -> [u64; 3] {
        [&counters.exported, &counters.dropped, &counters.failed].map(prometheus::IntCounter::get)
    }

    #[tokio::test(start_paused = true)]
    async fn spans_wait_for_a_collector_that_is_away_until_the_queue_is_full() {
        let collector = Scripted::new([AWAY; 9]);
        let (tracer, counters) = started(2048, collector.clone());
        deliver(&tracer, 1);
        // The first post was made, and nothing more is taken.
        sleep(Duration::from_secs(2)).await;
        deliver(&tracer, 2048);
        assert_eq!(counted(&counters), [0, 0, 0]);
        deliver(&tracer, 5);
        assert_eq!(counted(&counters), [0, 5, 0], "the newest are dropped");
        sleep(Duration::from_mins(10)).await;
        assert_eq!(counted(&counters), [2049, 5, 0]);
        let (gaps, spans) = collector.asked();
        for (gap, wait) in gaps.iter().zip([0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0, 5.0, 5.0]) {
            assert!((wait / 2.0..wait + 0.002).contains(gap), "{gap} of {wait}");
        }
        assert_eq!(spans[..10], [1; 10]);
        assert_eq!(spans[10..], [512; 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_collector_refuses_is_lost_and_it_says_how_long_to_wait() {
        let collector = Scripted::new([REFUSED, Some(5), Some(600)]);
        let (tracer, counters) = started(8, collector.clone());
        deliver(&tracer, 2);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(counted(&counters), [0, 0, 2]);
        deliver(&tracer, 1);
        sleep(Duration::from_mins(1)).await;
        assert_eq!(counted(&counters), [1, 0, 2]);
        let (gaps, spans) = collector.asked();
        let gaps: Vec<f64> = gaps.iter().map(|gap| gap.round()).collect();
        assert_eq!((&gaps[1..], spans), (&[5.0, 30.0][..], vec![2, 1, 1, 1]));
    }

    /// Asks for a flush, and waits for it in virtual time.
    async fn flush(flushes: &Sender<SyncSender<()>>) -> Duration {
        let (done, heard) = sync_channel(1);
        let begun = Instant::now();
        flushes.send(done).await.unwrap();
        while heard.try_recv().is_err() {
            sleep(Duration::from_millis(1)).await;
        }
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_end_nothing_waits() {
        for (answers, counts) in [
            // It is back: everything is taken.
            (vec![AWAY; 3], [1301, 0, 0]),
            // It is still away, at once or after a post.
            (vec![AWAY; 4], [0, 0, 1301]),
            (vec![AWAY, AWAY, AWAY, REFUSED, AWAY], [0, 0, 1301]),
        ] {
            let counters = counters();
            let (tracer, Ways { items, flushes }) = tracer_of(1.0, 2048, &counters);
            let (flusher, asked) = channel(1);
            drop(flushes);
            let collector = Scripted::new(answers);
            let task = ExportTask::new(collector.clone(), counters.clone(), "there".into());
            let running = tokio::spawn(task.run(items, asked));
            deliver(&tracer, 1);
            while collector.asked().1.len() < 3 {
                sleep(Duration::from_millis(1)).await;
            }
            deliver(&tracer, 1300);
            assert!(flush(&flusher).await < Duration::from_millis(10));
            assert_eq!(counted(&counters), counts);
            // Afterwards it goes on, and ends with the last who could hand something over.
            deliver(&tracer, 1);
            drop((tracer, flusher));
            running.await.unwrap();
            assert_eq!(counted(&counters).iter().sum::<u64>(), 1302);
        }
    }
}
