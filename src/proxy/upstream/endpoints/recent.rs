//! How many attempts at an endpoint have failed lately.
//!
//! An endpoint that fails at once has nothing in flight, so `leastRequest` would prefer it. Each failure therefore counts
//! as a request that is still in flight for another one to two seconds.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

/// The failures of the present second and of the one before it.
#[derive(Debug)]
pub(super) struct RecentFailures {
    origin: Instant,
    /// The second since `origin` (32 bits), the failures in the one before it and in it (16 bits each). No failure at
    /// all: 0.
    packed: AtomicU64,
}

/// What is packed.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    second: u32,
    before: u16,
    within: u16,
}

impl RecentFailures {
    /// None yet.
    pub(super) fn new() -> Self {
        Self { origin: Instant::now(), packed: AtomicU64::new(0) }
    }

    /// One more, now.
    pub(super) fn add(&self, now: Instant) {
        let second = self.second(now);
        let add = |packed| {
            let mut window = Window::unpack(packed).at(second);
            window.within = window.within.saturating_add(1);
            Some(window.pack())
        };
        // It always returns something.
        let _added = self.packed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok();
    }

    /// How many there were. The clock is read only if there were any.
    pub(super) fn count(&self, now: impl FnOnce() -> Instant) -> usize {
        let packed = self.packed.load(Ordering::Relaxed);
        if packed == 0 {
            return 0;
        }
        let Window { before, within, .. } = Window::unpack(packed).at(self.second(now()));
        usize::from(before) + usize::from(within)
    }

    fn second(&self, now: Instant) -> u32 {
        u32::try_from(now.saturating_duration_since(self.origin).as_secs()).unwrap_or(u32::MAX)
    }
}

impl Window {
    const fn unpack(packed: u64) -> Self {
        let [s0, s1, s2, s3, b0, b1, w0, w1] = packed.to_be_bytes();
        Self {
            second: u32::from_be_bytes([s0, s1, s2, s3]),
            before: u16::from_be_bytes([b0, b1]),
            within: u16::from_be_bytes([w0, w1]),
        }
    }

    const fn pack(self) -> u64 {
        let [s0, s1, s2, s3] = self.second.to_be_bytes();
        let ([b0, b1], [w0, w1]) = (self.before.to_be_bytes(), self.within.to_be_bytes());
        u64::from_be_bytes([s0, s1, s2, s3, b0, b1, w0, w1])
    }

    /// The same at a later second. An earlier one, of a clock that was read before, counts as the same.
    const fn at(self, second: u32) -> Self {
        match second.saturating_sub(self.second) {
            0 => self,
            1 => Self { second, before: self.within, within: 0 },
            _ => Self { second, before: 0, within: 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failure_counts_for_one_to_two_seconds() {
        let failures = RecentFailures::new();
        let origin = Instant::now();
        let at = |millis| origin + Duration::from_millis(millis);
        assert_eq!(failures.count(|| at(0)), 0);
        for millis in [100, 900, 900] {
            failures.add(at(millis));
        }
        let counts = [900, 1000, 1999, 2000, 9000].map(|millis| failures.count(|| at(millis)));
        assert_eq!(counts, [3, 3, 3, 0, 0]);
        failures.add(at(1500));
        let counts = [500, 1500, 2500, 3000].map(|millis| failures.count(|| at(millis)));
        assert_eq!(counts, [4, 4, 1, 0]);
    }
}
