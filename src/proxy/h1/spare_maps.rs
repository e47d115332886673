//! Maps of fields whose messages have ended, for the next messages of the thread. To make one means two allocations, and so
//! many again to free it.

use std::cell::RefCell;

use http::HeaderMap;

/// How many maps a thread keeps.
const KEPT: usize = 8;

/// The largest map that is kept, in fields.
const LARGEST: usize = 24;

/// The least room of a new map. A smaller one would serve few other messages.
const LEAST: usize = 6;

thread_local! {
    static SPARE: RefCell<Vec<HeaderMap>> = const { RefCell::new(Vec::new()) };
}

/// An empty map with room for so many fields.
pub(super) fn map_for(fields: usize) -> HeaderMap {
    let spare = SPARE.with_borrow_mut(Vec::pop);
    // One that is too small is dropped, so that those that are kept grow to what is needed.
    match spare {
        Some(map) if map.capacity() >= fields => map,
        _ => HeaderMap::with_capacity(fields.max(LEAST)),
    }
}

/// Keeps the room of a map that nobody needs any more.
pub(crate) fn give_back(mut map: HeaderMap) {
    if (1..=LARGEST).contains(&map.capacity()) {
        map.clear();
        // A thread that ends keeps nothing.
        let _kept = SPARE
            .try_with(|spare| {
                let mut spare = spare.borrow_mut();
                if spare.len() < KEPT {
                    spare.push(map);
                }
            })
            .is_ok();
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::{HOST, SERVER};

    use super::*;

    /// A map for so many fields, with two of them.
    fn filled(fields: usize) -> HeaderMap {
        let mut map = map_for(fields);
        map.append(HOST, HeaderValue::from_static("a"));
        map.append(HOST, HeaderValue::from_static("b"));
        map
    }

    #[test]
    fn a_map_that_comes_back_is_empty_and_has_room() {
        give_back(filled(20));
        let map = map_for(3);
        assert!(map.is_empty() && map.capacity() >= 20);
        assert!(map.get(HOST).is_none() && map.get(SERVER).is_none());
        give_back(map);
        assert!(map_for(21).capacity() >= 21);
    }

    #[test]
    fn only_so_many_and_none_that_is_large_or_was_never_filled() {
        let all: Vec<_> = (0..2 * KEPT).map(|_| filled(1)).collect();
        all.into_iter().for_each(give_back);
        give_back(HeaderMap::new());
        give_back(HeaderMap::with_capacity(1000));
        let kept = SPARE.with_borrow(Vec::len);
        assert_eq!(kept, KEPT);
        assert!(SPARE.with_borrow(|spare| spare.iter().all(|map| map.capacity() == LEAST)));
    }
}
