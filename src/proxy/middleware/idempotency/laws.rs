//! The memory of answers against a small model, for thousands of random schedules.

use std::collections::HashMap;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::answer::Answer;
use super::memory::{Digest, Found, Memory};
use crate::language::value::Value;

const TTL: u64 = 1000;

/// What the model knows of a key.
enum Known {
    AtWork { fingerprint: u8, claim: u64 },
    Kept { fingerprint: u8, answer: u32, until: u64 },
}

fn digest(number: u8) -> Digest {
    [number; 32]
}

fn answer(number: u32) -> Answer {
    Answer::of_value(&Value::from(number))
}

/// In any order of claims, answers, interruptions and time: one is at work for a key at a time, none after an answer was kept
/// until its time is over, all others get that answer, and whoever gives up leaves the key free.
#[tokio::test(start_paused = true)]
async fn each_key_s_work_is_done_once_until_there_is_an_answer() {
    let mut random = SmallRng::seed_from_u64(3);
    let mut replays = 0;
    for _ in 0..3_000 {
        let (memory, mut known, mut now) = (Memory::default(), HashMap::<u8, Known>::new(), 0);
        for step in 0..60_u32 {
            let passed = random.random_range(0..TTL / 8);
            now += passed;
            tokio::time::advance(Duration::from_millis(passed)).await;
            known.retain(|_, one| !matches!(one, Known::Kept { until, .. } if *until <= now));
            let key = random.random_range(0..4);
            if let Some(Known::AtWork { fingerprint, claim }) = known.get(&key)
                && random.random_bool(0.5)
            {
                let (fingerprint, claim) = (*fingerprint, *claim);
                if random.random_bool(0.5) {
                    memory.keep(digest(key), claim, answer(step), Duration::from_millis(TTL));
                    known.insert(key, Known::Kept { fingerprint, answer: step, until: now + TTL });
                } else {
                    memory.free(&digest(key), claim);
                    known.remove(&key);
                }
                continue;
            }
            let asked = random.random_range(0..2);
            let found = memory.claim(digest(key), digest(asked));
            match (known.get(&key), found) {
                (None, Found::Ours(claim)) => {
                    known.insert(key, Known::AtWork { fingerprint: asked, claim });
                }
                (Some(Known::AtWork { fingerprint, .. }), Found::InProgress)
                    if *fingerprint == asked => {}
                (Some(Known::Kept { fingerprint, answer: kept, .. }), Found::Kept(found))
                    if *fingerprint == asked =>
                {
                    assert_eq!(*found, answer(*kept));
                    replays += 1;
                }
                (
                    Some(Known::AtWork { fingerprint, .. } | Known::Kept { fingerprint, .. }),
                    Found::Mismatch,
                ) if *fingerprint != asked => {}
                (_, found) => panic!("{found:?} of {key} at {now}"),
            }
        }
        let working = known.values().filter(|one| matches!(one, Known::AtWork { .. })).count();
        assert_eq!(memory.held().0, working);
    }
    assert!(replays > 3_000, "{replays}");
}

#[tokio::test(start_paused = true)]
async fn answers_have_a_bound_and_the_oldest_go_first() {
    let memory = Memory::default();
    let large = |number: u32| answer(number).with_body(vec![0; 1 << 20].into(), None);
    let mut lost = 0;
    for number in 0..100_u8 {
        let Found::Ours(claim) = memory.claim(digest(number), digest(0)) else {
            panic!("{number}")
        };
        lost += memory.keep(digest(number), claim, large(number.into()), Duration::from_mins(1));
    }
    let (working, kept, bytes) = memory.held();
    assert_eq!((working, kept + lost), (0, 100));
    assert!(bytes <= 64 << 20 && kept == 63, "{kept} answers of {bytes} bytes");
    assert!(matches!(memory.claim(digest(99), digest(0)), Found::Kept(_)));
    // Forgotten, so it would be done again.
    let Found::Ours(claim) = memory.claim(digest(0), digest(0)) else { panic!() };
    memory.free(&digest(0), claim);
    tokio::time::advance(Duration::from_secs(61)).await;
    assert!(matches!(memory.claim(digest(99), digest(0)), Found::Ours(_)));
    assert_eq!(memory.held(), (1, 0, 0));
}
