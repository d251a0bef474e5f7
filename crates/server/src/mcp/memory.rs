//! What a session remembers of its request ids, so that a request sent twice acts once.
//!
//! An id names a request: the same id with the same content is a *duplicate* and gets the first
//! call's result; with other content it is refused. A client caught using one id for two requests
//! *reuses ids*: to such a client an ended call is never replayed, since the same content may well be
//! meant as a new request.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::call::{CallKey, Outcome};
use super::jsonrpc::Id;
use crate::limits::{IDS_REMEMBERED, RESULTS_KEPT_BYTES};

/// Content of a request, in 32 bytes.
pub(crate) type Digest = [u8; 32];

#[derive(Default)]
pub(crate) struct Memory {
    entries: HashMap<Id, Entry>,
    /// Ids in the order they were first used.
    order: VecDeque<Id>,
    /// Ended calls whose results are kept, oldest first.
    kept: VecDeque<(Id, CallKey)>,
    kept_bytes: usize,
    reuses_ids: bool,
}

struct Entry {
    digest: Digest,
    state: State,
}

enum State {
    /// Not a call, or a call that never began: doing it again is harmless.
    Harmless,
    Running(CallKey),
    Ended {
        key: CallKey,
        outcome: Arc<Outcome>,
        bytes: usize,
    },
    /// Ended, and the result had to make room.
    Forgotten,
}

/// What to do with a request.
#[must_use]
pub(crate) enum Judgement {
    Proceed,
    Join(CallKey),
    Replay(Arc<Outcome>),
    /// A duplicate whose result is gone. It must not act again.
    Forgotten,
    /// The id belongs to another request.
    Conflict,
}

impl Memory {
    /// Judges a request by its id and content, and remembers it.
    pub(crate) fn judge(&mut self, id: &Id, digest: Digest) -> Judgement {
        let Some(entry) = self.entries.get(id) else {
            self.remember(id.clone(), digest);
            return Judgement::Proceed;
        };
        if entry.digest != digest {
            self.reuses_ids = true;
            return Judgement::Conflict;
        }
        match &entry.state {
            State::Harmless => Judgement::Proceed,
            State::Running(key) => Judgement::Join(*key),
            State::Ended { .. } | State::Forgotten if self.reuses_ids => Judgement::Proceed,
            State::Ended { outcome, .. } => Judgement::Replay(Arc::clone(outcome)),
            State::Forgotten => Judgement::Forgotten,
        }
    }

    /// The remembered request is now this call.
    pub(crate) fn begin(&mut self, id: &Id, key: CallKey) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        if let State::Ended { bytes, .. } = entry.state {
            self.kept_bytes -= bytes;
        }
        entry.state = State::Running(key);
    }

    /// The call has ended; its result holds about `bytes`.
    pub(crate) fn end(&mut self, id: &Id, key: CallKey, outcome: Arc<Outcome>, bytes: usize) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        if !matches!(entry.state, State::Running(running) if running == key) {
            return;
        }
        entry.state = State::Ended { key, outcome, bytes };
        self.kept_bytes += bytes;
        self.kept.push_back((id.clone(), key));
        while self.kept_bytes > RESULTS_KEPT_BYTES || self.kept.len() > IDS_REMEMBERED {
            let Some((id, key)) = self.kept.pop_front() else {
                break;
            };
            self.forget_result(&id, key);
        }
    }

    fn remember(&mut self, id: Id, digest: Digest) {
        // A running call keeps its place; there are fewer of those than places.
        for _ in 0..self.order.len() {
            if self.order.len() < IDS_REMEMBERED {
                break;
            }
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            match self.entries.get(&oldest).map(|entry| &entry.state) {
                Some(State::Running(_)) => self.order.push_back(oldest),
                Some(State::Ended { bytes, .. }) => {
                    self.kept_bytes -= bytes;
                    self.entries.remove(&oldest);
                }
                Some(State::Harmless | State::Forgotten) | None => {
                    self.entries.remove(&oldest);
                }
            }
        }
        self.order.push_back(id.clone());
        let state = State::Harmless;
        self.entries.insert(id, Entry { digest, state });
    }

    fn forget_result(&mut self, id: &Id, of: CallKey) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        if let State::Ended { key, bytes, .. } = entry.state
            && key == of
        {
            self.kept_bytes -= bytes;
            entry.state = State::Forgotten;
        }
    }
}

/// Digests a request's content. `_meta` is not content, and the order of names means nothing.
pub(crate) fn digest(method: &str, params: &Map<String, Value>) -> Digest {
    let mut hasher = Sha256::new();
    text(&mut hasher, method);
    object(&mut hasher, params, |name| name != "_meta");
    hasher.finalize().into()
}

fn object(hasher: &mut Sha256, fields: &Map<String, Value>, counts: impl Fn(&str) -> bool) {
    let mut fields: Vec<_> = fields.iter().filter(|(name, _)| counts(name)).collect();
    fields.sort_unstable_by_key(|(name, _)| *name);
    hasher.update(b"{");
    for (name, value) in fields {
        text(hasher, name);
        content(hasher, value);
    }
    hasher.update(b"}");
}

/// Every value is written so that no two different ones write the same bytes.
fn content(hasher: &mut Sha256, value: &Value) {
    match value {
        Value::Null => hasher.update(b"n"),
        Value::Bool(true) => hasher.update(b"t"),
        Value::Bool(false) => hasher.update(b"f"),
        Value::Number(number) => {
            hasher.update(b"#");
            text(hasher, &number.to_string());
        }
        Value::String(string) => text(hasher, string),
        Value::Array(items) => {
            hasher.update(b"[");
            for item in items {
                content(hasher, item);
            }
            hasher.update(b"]");
        }
        Value::Object(fields) => object(hasher, fields, |_| true),
    }
}

fn text(hasher: &mut Sha256, text: &str) {
    hasher.update(b"\"");
    hasher.update((text.len() as u64).to_le_bytes());
    hasher.update(text);
}
