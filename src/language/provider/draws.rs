//! Random draws, which a rehearsal can repeat.

use std::sync::{Mutex, PoisonError};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// The source of a provider's random draws.
#[derive(Debug, Default)]
pub struct Draws {
    /// `None`: the thread's own generator.
    seeded: Option<Mutex<SmallRng>>,
}

impl Draws {
    /// Draws that depend only on `seed`, or truly random ones without it.
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
