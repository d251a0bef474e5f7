//! Proving what is kept beside the chain: each closing event tells a digest of its command's output and result.
//!
//! First the events are asked what they tell, then every kept row is held against that, each against the other: a row that no
//! event tells of was put there, and an event whose row is gone is told too. A closing event without a digest, of a call that was
//! refused before it was opened, tells of no row. Rows stay as long as the event that tells of them, but for those of other nodes.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use countersign_gateway::audit::chain::{Columns, Hash};
use countersign_gateway::audit::event::EventType;
use countersign_gateway::audit::kept::{self, Kept};
use countersign_gateway::audit::opened::{self, Opened, Vouched};
use countersign_gateway::clock::Timestamp;
use serde_json::Value;

use crate::ended::Ends;
use crate::prove::{Fault, Flaw};
use crate::rows::acts::TELLING;
use crate::sqlite::prune::DAY_MILLIS;

/// What events tell, 32 bytes for each.
#[derive(Default)]
pub(crate) struct Told {
    closings: Vec<Closing>,
    chains: Vec<String>,
    /// Digests are known again by eight bytes, made with a secret of this moment: nobody can prepare two that are alike.
    names: RandomState,
    /// What was pruned, by the chain that tells of it.
    pruned_before_ms: HashMap<String, i64>,
    /// Requests of which a row was found that no event tells of.
    strangers: Vec<String>,
    /// Calls of which not as many ends as beginnings were heard so far, by their correlation and request.
    calls: HashMap<u64, Call>,
    /// Ends of acts that are no commands.
    ends: Ends,
}

/// What was heard of a call. Two parts of a chain are walked at once, so its end may be heard first.
#[derive(Default)]
struct Call {
    /// Beginnings less ends.
    balance: i32,
    /// A beginning that left a row, by chain and place.
    opening: Option<(String, u64)>,
    /// An end, by chain, place and time.
    closing: Option<(String, u64, i64)>,
}

/// How long a command may have been open whose beginning was pruned: what waits for an answer is asked about for days.
const OPEN_MILLIS_MAX: i64 = 30 * DAY_MILLIS;

/// A closing event that tells of a row.
struct Closing {
    digest: u64,
    seq: u64,
    at_ms: i64,
    chain: u32,
    is_kept: bool,
}

/// A closing event in the database.
pub(crate) struct Found {
    pub(crate) chain: String,
    pub(crate) seq: u64,
    pub(crate) payload: String,
}

impl Told {
    /// Takes in an event that was proved.
    pub(crate) fn hear(&mut self, seq: u64, event: &Columns<'_>) {
        if event.event_type == EventType::AuditPruned.as_str() {
            let before = serde_json::from_str::<Value>(event.payload).unwrap_or_default();
            let before = Timestamp::parse(before["before"].as_str().unwrap_or_default());
            let before = before.map_or(i64::MIN, Timestamp::as_millis);
            let known = self.pruned_before_ms.entry(event.chain.to_owned()).or_insert(before);
            *known = before.max(*known);
        }
        self.hear_of_call(seq, event);
        self.ends.hear(seq, event);
        if let Some((_, digest)) = kept::told(event.event_type, event.payload) {
            // Chains are walked one behind the other.
            if self.chains.last().is_none_or(|last| last != event.chain) {
                self.chains.push(event.chain.to_owned());
            }
            self.closings.push(Closing {
                digest: self.names.hash_one(digest),
                seq,
                at_ms: Timestamp::parse(event.timestamp).map_or(i64::MAX, Timestamp::as_millis),
                chain: u32::try_from(self.chains.len() - 1).unwrap_or(u32::MAX),
                is_kept: false,
            });
        }
    }

    fn hear_of_call(&mut self, seq: u64, event: &Columns<'_>) {
        let (begins, ends) = (opened::is_opening(event.event_type), kept::is_closing(event.event_type));
        if !begins && !ends {
            return;
        }
        let Some(told) = opened::told(event.payload) else {
            return;
        };
        let name = self.names.hash_one((event.correlation_id, &*told.request_id));
        let call = self.calls.entry(name).or_default();
        if begins {
            call.balance += 1;
            if told.opening_digest.is_some() {
                call.opening = Some((event.chain.to_owned(), seq));
            }
        } else {
            call.balance -= 1;
            let at_ms = Timestamp::parse(event.timestamp).map_or(i64::MAX, Timestamp::as_millis);
            call.closing = Some((event.chain.to_owned(), seq, at_ms));
        }
        if call.balance == 0 {
            self.calls.remove(&name);
        }
    }

    /// Whether events of this kind say anything here.
    pub(crate) fn listens_to(event_type: &str) -> bool {
        kept::is_closing(event_type)
            || opened::is_opening(event_type)
            || event_type == EventType::AuditPruned.as_str()
            || TELLING.contains(&event_type)
    }

    /// All events were heard; from now on rows are seen.
    pub(crate) fn settle(&mut self) {
        self.closings.sort_unstable_by_key(|it| it.digest);
    }

    /// Whether a row is one that an event tells of.
    pub(crate) fn see(&mut self, row: &Kept<'_>) -> bool {
        self.see_digest(&row.digest()) || self.see_digest(&row.earlier_digest())
    }

    fn see_digest(&mut self, digest: &Hash) -> bool {
        let digest = self.names.hash_one(digest);
        let found = self.closings.binary_search_by_key(&digest, |it| it.digest);
        found.map(|place| self.closings[place].is_kept = true).is_ok()
    }

    /// Judges a row that no event was heard to tell of, by the closing events of its call as they stand now.
    pub(crate) fn judge(&mut self, row: &Kept<'_>, closed_at_ms: i64, found: &[Found]) -> Result<(), Flaw> {
        let digests = [row.digest(), row.earlier_digest()];
        let mut other = None;
        for closing in found {
            if request_of(&closing.payload) != row.request_id {
                continue;
            }
            let fault = match kept::told(EventType::CommandCompleted.as_str(), &closing.payload) {
                // It was written meanwhile.
                Some((_, told)) if digests.contains(&told) => return Ok(()),
                Some(_) => Fault::KeptChanged,
                None => Fault::KeptAdded,
            };
            other = other.or_else(|| Some(fault.at(closing.seq).of(&closing.chain)));
        }
        if let Some(flaw) = other {
            return Err(flaw);
        }
        // The clock of the row is not that of its event, but nearly.
        let may_be_pruned = |before_ms: i64| closed_at_ms < before_ms.saturating_add(DAY_MILLIS);
        if !self.pruned_before_ms(None).is_some_and(may_be_pruned) {
            self.strangers.push(row.request_id.to_owned());
        }
        Ok(())
    }

    /// What is older may have been pruned, by some node or by others than that of this chain.
    fn pruned_before_ms(&self, but_for: Option<&str>) -> Option<i64> {
        let prunes = self.pruned_before_ms.iter();
        let prunes = prunes.filter(|(chain, _)| but_for != Some(chain.as_str()));
        prunes.map(|(_, before)| *before).max()
    }

    /// Chain and place of the first event whose row was not found and had not to go. A node leaves what its own chain tells of;
    /// what others tell of it takes by its time.
    pub(crate) fn first_missing(&self) -> Option<(&str, u64)> {
        let others: Vec<_> = self.chains.iter().map(|it| self.pruned_before_ms(Some(it))).collect();
        let may_be_pruned = |it: &Closing| {
            let before = usize::try_from(it.chain).ok().and_then(|chain| *others.get(chain)?);
            before.is_some_and(|before| it.at_ms < before)
        };
        let missing = self.closings.iter().filter(|it| !it.is_kept && !may_be_pruned(it));
        let first = missing.min_by_key(|it| (it.chain, it.seq))?;
        Some((&self.chains[usize::try_from(first.chain).ok()?], first.seq))
    }

    /// What is wrong with the row of such an event: it is gone, or stands there with other ids.
    pub(crate) fn missing(&self, request_id: &str) -> Fault {
        if self.strangers.iter().any(|stranger| stranger == request_id) {
            Fault::KeptChanged
        } else {
            Fault::KeptMissing
        }
    }

    /// Chain and place of openings behind which no closing was heard: these calls are open, or were closed meanwhile.
    pub(crate) fn unclosed(&self) -> Vec<(&str, u64)> {
        let open = self.calls.values().filter(|call| call.balance > 0);
        let mut unclosed: Vec<_> = open.filter_map(|call| call.opening.as_ref()).collect();
        unclosed.sort_unstable();
        unclosed
            .into_iter()
            .map(|(chain, seq)| (chain.as_str(), *seq))
            .collect()
    }

    /// Chain and place of ends before which no beginning was heard, and none can have been pruned.
    pub(crate) fn unopened(&self) -> Vec<(&str, u64)> {
        let pruned_ms = self.pruned_before_ms(None);
        let pruned_ms = pruned_ms.map(|before| before.saturating_add(OPEN_MILLIS_MAX));
        let ended = self.calls.values().filter(|call| call.balance < 0);
        let mut unopened: Vec<_> = ended
            .filter_map(|call| call.closing.as_ref())
            .filter(|(_, _, at_ms)| pruned_ms.is_none_or(|pruned| *at_ms >= pruned))
            .collect();
        unopened.sort_unstable();
        unopened
            .into_iter()
            .map(|(chain, seq, _)| (chain.as_str(), *seq))
            .collect()
    }

    /// The end of an act that had ended before.
    pub(crate) fn ended_twice(&self) -> Option<&Flaw> {
        self.ends.twice()
    }

    /// A row that no event tells of, by its request id.
    pub(crate) fn stranger(&self) -> Option<&str> {
        self.strangers.first().map(String::as_str)
    }
}

/// Whether a closing event of its call tells of a row.
pub(crate) fn is_told(row: &Kept<'_>, found: &[Found]) -> bool {
    let mut told = Told::default();
    told.judge(row, i64::MAX, found).is_ok() && told.stranger().is_none()
}

/// Holds the row of an open command against the events of its call.
pub(crate) fn prove_open<'e>(row: &Opened<'_>, events: impl IntoIterator<Item = &'e str>) -> Result<(), String> {
    let request_id = row.request_id;
    match row.vouched(events) {
        Vouched::Whole | Vouched::Untold => Ok(()),
        Vouched::Changed => Err(format!(
            "what the open command `{request_id}` is to be closed with was changed, it is not what its opening tells of"
        )),
        Vouched::Added => Err(format!(
            "an open command `{request_id}` was added, no event tells of it"
        )),
    }
}

/// The request that a closing event is of.
pub(crate) fn request_of(payload: &str) -> String {
    let payload: Value = serde_json::from_str(payload).unwrap_or_default();
    payload["request_id"].as_str().unwrap_or_default().to_owned()
}

/// Whether a closing event says that nothing was begun: there were builds that told of some refusals by their end alone.
pub(crate) fn never_began(payload: &str) -> bool {
    let payload: Value = serde_json::from_str(payload).unwrap_or_default();
    payload["error_code"].is_string() && payload["exit_code"].is_null() && payload["duration_ms"] == 0
}

/// What is said of a row that was put there.
pub(crate) fn added(request_id: &str) -> String {
    format!("what is kept of a command `{request_id}` was added, no event tells of it")
}
