//! A map that only grows and is read without a lock.
//!
//! A request must find its counter without a lock. But nobody knows in advance which statuses, reasons or
//! upstreams a route will meet, and counters for every combination would cost too much memory with ten thousand
//! routes. So a counter is made when it is first needed and appended to a list whose links never move and are
//! never freed. Readers walk the list with plain loads, and `OnceLock` decides between two writers. The lists
//! are short, because the names in a configuration bound their keys.

use std::sync::OnceLock;

/// Keys and values, in the order of their first use.
#[derive(Debug)]
pub(super) struct Series<K, V> {
    head: OnceLock<Box<Node<K, V>>>,
}

#[derive(Debug)]
struct Node<K, V> {
    key: K,
    value: V,
    next: OnceLock<Box<Self>>,
}

impl<K, V> Default for Series<K, V> {
    fn default() -> Self {
        Self { head: OnceLock::new() }
    }
}

impl<K: PartialEq, V> Series<K, V> {
    /// The value of the key for which `is` returns true; if there is none, `make` appends it.
    ///
    /// If another thread appends first, the result of `make` is dropped. So it must return the same handle each
    /// time, as the metric registry does.
    pub(super) fn find_or(&self, is: impl Fn(&K) -> bool, make: impl Fn() -> (K, V)) -> &V {
        let mut slot = &self.head;
        loop {
            let link = slot.get_or_init(|| {
                let (key, value) = make();
                Box::new(Node { key, value, next: OnceLock::new() })
            });
            if is(&link.key) {
                return &link.value;
            }
            slot = &link.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn a_key_keeps_the_value_it_was_first_given() {
        let series = Series::<u16, u16>::default();
        for key in [3, 1, 3, 2, 1] {
            let value = series.find_or(|k| *k == key, || (key, key * 10));
            assert_eq!(*value, key * 10);
        }
        assert_eq!(*series.find_or(|k| *k == 2, || (2, 0)), 20);
    }

    #[test]
    fn threads_that_race_for_a_key_share_one_value() {
        let series = Arc::new(Series::<usize, AtomicU64>::default());
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let series = Arc::clone(&series);
                std::thread::spawn(move || {
                    for n in 0..1000 {
                        let key = n % 5;
                        series
                            .find_or(|k| *k == key, || (key, AtomicU64::new(0)))
                            .fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        for key in 0..5 {
            let count = series.find_or(|k| *k == key, || (key, AtomicU64::new(0)));
            assert_eq!(count.load(Ordering::Relaxed), 800, "key {key}");
        }
    }
}
