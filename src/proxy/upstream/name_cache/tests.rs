use super::*;

fn addresses(of: &[&str]) -> Addresses {
    of.iter().map(|address| address.parse().unwrap()).collect()
}

fn names() -> NameCache {
    NameCache::new(2)
}

/// The lookup with this number has ended. Returns whether the name has other addresses than before.
fn ended(
    names: &NameCache,
    place: usize,
    number: u64,
    found: Option<&Addresses>,
    now: Instant,
) -> bool {
    let mut changed = false;
    names.looked_up(place, number, found, now, |_| changed = true);
    changed
}

#[tokio::test(start_paused = true)]
async fn other_addresses_are_a_change() {
    let names = names();
    let now = Instant::now();
    let (old, new) = (addresses(&["127.0.0.2:80", "[::1]:80"]), addresses(&["127.0.0.3:80"]));
    let peer = |peer: &str| peer.parse().unwrap();
    assert!(names.has(0, peer("127.0.0.9")), "nothing is known");
    assert!(ended(&names, 0, 1, Some(&old), now));
    // The same addresses in another order are no change.
    assert!(!ended(&names, 0, 2, Some(&addresses(&["[::1]:80", "127.0.0.2:80"])), now));
    assert!(ended(&names, 0, 3, Some(&new), now));
    assert!(!names.has(0, peer("127.0.0.2")) && names.has(0, peer("127.0.0.3")));
    assert!(names.has(1, peer("127.0.0.2")), "another endpoint's");
    // A failure says nothing about addresses, and neither does an older lookup.
    assert!(!ended(&names, 0, 4, None, now) && !ended(&names, 0, 2, Some(&old), now));
    assert!(names.has(0, peer("127.0.0.3")));
}

#[tokio::test(start_paused = true)]
async fn names_that_were_found_are_looked_up_again_when_they_are_old() {
    let names = names();
    let now = Instant::now();
    assert_eq!(names.due(now), (vec![], None));
    ended(&names, 1, 1, None, now);
    assert_eq!(names.due(now), (vec![], None), "it was never found");
    ended(&names, 0, 1, Some(&addresses(&["127.0.0.2:80"])), now);
    let then = now + FRESH;
    assert_eq!(names.due(now), (vec![], Some(then)));
    assert_eq!(names.due(then), (vec![0], Some(then + FRESH)));
    // A failed lookup counts too.
    ended(&names, 0, 1, None, then);
    assert_eq!(names.due(then), (vec![], Some(then + FRESH)));
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_at_the_same_time_share_a_look_up() {
    let (names, now, patience) = (names(), Instant::now(), Duration::from_secs(1));
    let found = addresses(&["127.0.0.2:80"]);
    let seen = Mutex::new(Vec::new());
    let look_up = |endpoint, now| {
        let begin = |number| {
            seen.lock().unwrap().push((endpoint, number));
            std::future::pending().boxed()
        };
        let Waiting { lookups, until, known } = names.look_up(endpoint, (now, patience), begin);
        (lookups.len(), until.map(|until| until - now), known)
    };
    let at = |millis| now + Duration::from_millis(millis);
    let left = |millis| Some(Duration::from_millis(millis));
    assert_eq!(look_up(0, at(0)), (1, left(1000), None));
    assert_eq!(look_up(0, at(900)), (1, left(100), None));
    assert_eq!(look_up(1, at(900)), (1, left(1000), None));
    // One that hangs gets company, but never a third.
    assert_eq!(look_up(0, at(1000)), (2, None, None));
    assert_eq!(look_up(0, at(9000)), (2, None, None));
    assert_eq!(*seen.lock().unwrap(), [(0, 1), (1, 1), (0, 2)]);
    // The second one ends. Its addresses help those who come while the first still hangs.
    ended(&names, 0, 2, Some(&found), at(9000));
    assert_eq!(look_up(0, at(9000)), (2, left(1000), Some(Arc::clone(&found))));
    // What the first finds at last is older.
    ended(&names, 0, 1, Some(&addresses(&["127.0.0.9:80"])), at(9100));
    assert_eq!(look_up(0, at(9100)), (1, left(900), Some(found)));
    assert_eq!(*seen.lock().unwrap(), [(0, 1), (1, 1), (0, 2), (0, 3)]);
}
