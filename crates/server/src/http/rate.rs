//! How often one credential may ask: a bucket of tokens each, filled at a steady rate.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use countersign_gateway::ids::CredentialId;
use tokio::time::Instant;

use crate::limits::RATES_MAX;

pub(super) struct Rates {
    /// Requests a second.
    rate: f64,
    /// Requests at once.
    burst: f64,
    buckets: Mutex<HashMap<CredentialId, Bucket>>,
}

struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Rates {
    pub(super) fn new(rate: f64, burst: Option<u64>) -> Self {
        // Without a word about bursts a second's worth may come at once.
        let burst = burst.map_or(rate.max(1.0), |burst| burst.max(1) as f64);
        Self {
            rate,
            burst,
            buckets: Mutex::default(),
        }
    }

    /// Takes one request, or says when to come again.
    pub(super) fn take(&self, credential: &CredentialId, now: Instant) -> Result<(), Duration> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if !buckets.contains_key(credential) {
            if buckets.len() >= RATES_MAX {
                // A full bucket says no more than none.
                buckets.retain(|_, bucket| bucket.filled(self.rate, now) < self.burst);
            }
            let tokens = self.burst;
            buckets.insert(credential.clone(), Bucket { tokens, at: now });
        }
        let Some(bucket) = buckets.get_mut(credential) else {
            return Ok(());
        };
        bucket.tokens = bucket.filled(self.rate, now).min(self.burst);
        bucket.at = now;
        if bucket.tokens >= 1.0 {
            bucket.tokens -= 1.0;
            return Ok(());
        }
        let missing = 1.0 - bucket.tokens;
        Err(Duration::try_from_secs_f64(missing / self.rate).unwrap_or(Duration::MAX))
    }
}

impl Bucket {
    fn filled(&self, rate: f64, now: Instant) -> f64 {
        self.tokens + rate * now.duration_since(self.at).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_the_rest_comes_at_the_rate() {
        let rates = Rates::new(2.0, Some(3));
        let (ana, bob) = (CredentialId::trusted("ana"), CredentialId::trusted("bob"));
        let start = Instant::now();
        for _ in 0..3 {
            assert_eq!(rates.take(&ana, start), Ok(()));
        }
        assert_eq!(rates.take(&ana, start), Err(Duration::from_millis(500)));
        assert_eq!(rates.take(&bob, start), Ok(()));
        let later = start + Duration::from_millis(500);
        assert_eq!(rates.take(&ana, later), Ok(()));
        assert!(rates.take(&ana, later).is_err());
        let much_later = later + Duration::from_secs(3_600);
        let passed = (0..10).filter(|_| rates.take(&ana, much_later).is_ok()).count();
        assert_eq!(passed, 3);
    }
}
