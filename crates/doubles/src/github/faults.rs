//! What goes wrong on purpose: refusals, limits, cut connections, and what others do meanwhile.

use std::time::Duration;

use serde_json::json;

use crate::http::{Request, Response};

/// What happens instead of an answer, or beside it.
pub enum Fault {
    /// This is answered, and nothing is done.
    Answer(Response),
    /// The connection ends before anything is done.
    Cut,
    /// The connection ends when it is done.
    CutBehind,
    /// It takes so long.
    Slow(Duration),
    /// It is done at once, and that is said after so long.
    SlowBehind(Duration),
    /// Somebody else acts first.
    Meanwhile(Box<dyn FnOnce() + Send>),
}

impl Fault {
    /// The hourly allowance is used up; it comes back at this second of Unix time.
    pub fn primary_limit(reset: u64) -> Self {
        let body = json!({"message": "API rate limit exceeded for user ID 1."});
        Self::Answer(
            Response::new(403, body)
                .with("x-ratelimit-limit", "5000")
                .with("x-ratelimit-remaining", "0")
                .with("x-ratelimit-reset", reset.to_string()),
        )
    }

    /// Too much at once; try again after so many seconds.
    pub fn secondary_limit(seconds: u64) -> Self {
        let body = json!({"message": "You have exceeded a secondary rate limit."});
        Self::Answer(Response::new(429, body).with("retry-after", seconds.to_string()))
    }

    pub fn status(status: u16, message: &str) -> Self {
        Self::Answer(Response::new(
            status,
            json!({"message": message, "documentation_url": "https://docs.github.com/rest"}),
        ))
    }
}

/// Faults that wait for their request.
#[derive(Default)]
pub(crate) struct Script(Vec<(String, String, Fault)>);

impl Script {
    pub(crate) fn add(&mut self, method: &str, ending: &str, fault: Fault) {
        self.0.push((method.to_owned(), ending.to_owned(), fault));
    }

    pub(crate) fn take(&mut self, request: &Request) -> Option<Fault> {
        let fits =
            |(method, ending, _): &(String, String, Fault)| *method == request.method && request.path.ends_with(ending);
        let place = self.0.iter().position(fits)?;
        Some(self.0.remove(place).2)
    }
}
