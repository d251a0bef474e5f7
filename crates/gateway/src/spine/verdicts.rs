//! How often policy said what, since this process began.

use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: [&str; 3] = ["allow", "ask", "deny"];

#[derive(Default)]
pub(super) struct Verdicts([AtomicU64; WORDS.len()]);

impl Verdicts {
    pub(super) fn count(&self, word: &str) {
        if let Some(place) = WORDS.iter().position(|known| *known == word) {
            self.0[place].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn counted(&self) -> Vec<(&'static str, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        WORDS.into_iter().zip(counts).collect()
    }
}
