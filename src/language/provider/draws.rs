//! Random draws, which a rehearsal repeats.

use std::sync::{Mutex, PoisonError};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Where a provider's draws come from.
#[derive(Debug, Default)]
pub struct Draws {
    /// `None`: the thread's own generator.
    seeded: Option<Mutex<SmallRng>>,
}

impl Draws {
    /// Draws that are the same for the same `seed`, and without one anything.
    pub fn of(seed: Option<u64>) -> Self {
        Self { seeded: seed.map(|seed| Mutex::new(SmallRng::seed_from_u64(seed))) }
    }

    /// A draw from [0, 1).
    pub fn uniform(&self) -> f64 {
        match &self.seeded {
            None => rand::random(),
            Some(draws) => draws.lock().unwrap_or_else(PoisonError::into_inner).random(),
        }
    }
}
