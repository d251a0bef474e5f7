//! What a session remembers of its request ids, so that a request sent twice acts once.
//!
//! An id names a request: the same id with the same content is a *duplicate* and gets the first
//! call's result. With other content it is refused where answers share one stream, and a request of
//! its own where each has its own ([`Reuse`]). A client caught using one id for two requests *reuses
//! ids*: to such a client an ended call is never replayed, since the same content may well be meant
//! as a new request.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use countersign_gateway::ids::RequestId;
use countersign_gateway::session::lifetime::KeptRequest;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::call::CallKey;
use super::job::Outcome;
use super::jsonrpc::Id;
use crate::limits::{IDS_REMEMBERED, RESULTS_KEPT_BYTES};

/// Content of a request, in 32 bytes; what is remembered of it is made with a key of the seal.
pub(crate) type Digest = [u8; 32];

/// What becomes of an id that comes again with other content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reuse {
    /// Two answers under one id could not be told apart.
    Refused,
    /// Each answer goes back on its own request.
    Separate,
}

/// A request: the id it had and the content.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Asked {
    pub(crate) id: Id,
    pub(crate) digest: Digest,
}

pub(crate) struct Memory {
    reuse: Reuse,
    requests: HashMap<Asked, State>,
    /// How many remembered requests share an id.
    ids: HashMap<Id, usize>,
    /// Requests in the order they first came.
    order: VecDeque<Asked>,
    /// Ended calls whose results are kept, oldest first.
    kept: VecDeque<(Asked, CallKey)>,
    kept_bytes: usize,
    reuses_ids: bool,
}

enum State {
    /// Doing it again is harmless: it is no call, it has no effect, or the gateway knows it again.
    Harmless,
    Running(CallKey),
    Ended {
        key: CallKey,
        outcome: Arc<Outcome>,
        bytes: usize,
    },
    /// Ended; the record knows its result.
    Recorded(RequestId),
    /// Ended, and the result had to make room.
    Forgotten,
}

/// What is kept of an ended call.
pub(crate) enum Kept {
    /// The outcome, of about so many bytes.
    Here(Arc<Outcome>, usize),
    InRecord(RequestId),
    /// Nothing, since it may well be done again.
    Nothing,
}

/// What to do with a request.
#[must_use]
pub(crate) enum Judgement {
    Proceed,
    Join(CallKey),
    Replay(Arc<Outcome>),
    /// A duplicate whose result is in the record.
    Recall(RequestId),
    /// A duplicate whose result is gone. It must not act again.
    Forgotten,
    /// The id belongs to another request.
    Conflict,
}

impl Memory {
    pub(crate) fn new(reuse: Reuse) -> Self {
        Self {
            reuse,
            requests: HashMap::new(),
            ids: HashMap::new(),
            order: VecDeque::new(),
            kept: VecDeque::new(),
            kept_bytes: 0,
            reuses_ids: false,
        }
    }

    /// What an earlier life of the session left in the store.
    pub(crate) fn restored(reuse: Reuse, reuses_ids: bool, requests: Vec<KeptRequest>) -> Self {
        let mut memory = Self::new(reuse);
        for KeptRequest {
            rpc_id,
            digest,
            command,
            waits,
        } in requests
        {
            if waits {
                continue;
            }
            let id = serde_json::from_str::<Value>(&rpc_id).ok().map(Id::try_from);
            let Some(Ok(id)) = id else {
                continue;
            };
            let asked = Asked { id, digest };
            memory.reuses_ids |= memory.ids.contains_key(&asked.id) && !memory.requests.contains_key(&asked);
            memory.remember(asked, command.map_or(State::Harmless, State::Recorded));
        }
        memory.reuses_ids |= reuses_ids;
        memory
    }

    pub(crate) fn reuses_ids(&self) -> bool {
        self.reuses_ids
    }

    /// A request that an earlier version wrote down is known by its plain content.
    pub(crate) fn recognise(&self, asked: &mut Asked, content: Digest) {
        let plain = Asked {
            id: asked.id.clone(),
            digest: content,
        };
        if self.requests.contains_key(&plain) {
            *asked = plain;
        }
    }

    /// Judges a request by its id and content, and remembers it.
    pub(crate) fn judge(&mut self, asked: &Asked) -> Judgement {
        match self.requests.get(asked) {
            None if !self.ids.contains_key(&asked.id) => {}
            None => {
                self.reuses_ids = true;
                if self.reuse == Reuse::Refused {
                    return Judgement::Conflict;
                }
            }
            Some(State::Harmless) => return Judgement::Proceed,
            Some(State::Running(key)) => return Judgement::Join(*key),
            Some(State::Ended { .. } | State::Recorded(_) | State::Forgotten) if self.reuses_ids => {
                return Judgement::Proceed;
            }
            Some(State::Ended { outcome, .. }) => return Judgement::Replay(Arc::clone(outcome)),
            Some(State::Recorded(command)) => return Judgement::Recall(command.clone()),
            Some(State::Forgotten) => return Judgement::Forgotten,
        }
        self.remember(asked.clone(), State::Harmless);
        Judgement::Proceed
    }

    /// The remembered request is now this call.
    pub(crate) fn begin(&mut self, asked: &Asked, key: CallKey) {
        let Some(state) = self.requests.get_mut(asked) else {
            return;
        };
        if let State::Ended { bytes, .. } = state {
            self.kept_bytes -= *bytes;
        }
        *state = State::Running(key);
    }

    /// The call has ended.
    pub(crate) fn end(&mut self, asked: &Asked, key: CallKey, kept: Kept) {
        let Some(state) = self.requests.get_mut(asked) else {
            return;
        };
        if !matches!(state, State::Running(running) if *running == key) {
            return;
        }
        match kept {
            Kept::Nothing => *state = State::Harmless,
            Kept::InRecord(command) => *state = State::Recorded(command),
            Kept::Here(outcome, bytes) => {
                *state = State::Ended { key, outcome, bytes };
                self.kept_bytes += bytes;
                self.kept.push_back((asked.clone(), key));
            }
        }
        while self.kept_bytes > RESULTS_KEPT_BYTES || self.kept.len() > IDS_REMEMBERED {
            let Some((asked, key)) = self.kept.pop_front() else {
                break;
            };
            self.forget_result(&asked, key);
        }
    }

    fn remember(&mut self, asked: Asked, state: State) {
        // A running call keeps its place; there are fewer of those than places.
        for _ in 0..self.order.len() {
            if self.order.len() < IDS_REMEMBERED {
                break;
            }
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            if matches!(self.requests.get(&oldest), Some(State::Running(_))) {
                self.order.push_back(oldest);
            } else {
                self.forget(&oldest);
            }
        }
        if self.requests.insert(asked.clone(), state).is_none() {
            *self.ids.entry(asked.id.clone()).or_default() += 1;
            self.order.push_back(asked);
        }
    }

    fn forget(&mut self, asked: &Asked) {
        if let Some(State::Ended { bytes, .. }) = self.requests.remove(asked) {
            self.kept_bytes -= bytes;
        }
        if let Some(count) = self.ids.get_mut(&asked.id) {
            *count -= 1;
            if *count == 0 {
                self.ids.remove(&asked.id);
            }
        }
    }

    fn forget_result(&mut self, asked: &Asked, of: CallKey) {
        let Some(state) = self.requests.get_mut(asked) else {
            return;
        };
        if let State::Ended { key, bytes, .. } = state
            && *key == of
        {
            self.kept_bytes -= *bytes;
            *state = State::Forgotten;
        }
    }
}

/// Digests a request's content. `_meta` is not content, and the order of names means nothing.
pub(crate) fn digest(method: &str, params: &Map<String, Value>) -> Digest {
    digest_without(method, params, &["_meta"])
}

/// Digests a request's content less some of its parameters.
pub(crate) fn digest_without(method: &str, params: &Map<String, Value>, without: &[&str]) -> Digest {
    let mut hasher = Sha256::new();
    text(&mut hasher, method);
    object(&mut hasher, params, |name| !without.contains(&name));
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
