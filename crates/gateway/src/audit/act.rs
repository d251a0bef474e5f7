//! Acts that are no commands, from their opening to their end.
//!
//! An act that changes something is open from the moment before it is done until its end is in the record.
//! Each system that it acts upon leaves one event, `mcp.tool.applied` or `mcp.tool.failed`; what a crash left
//! open the sweeper ends with `ABANDONED`. A service outside tells through the end of its delegation, which may
//! come long after the call was answered, and nobody tells in its place.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};

use super::event::{Actor, ApprovalState, Draft, EventType};
use super::outcome::{AskedAct, KeptOutcome};
use super::payload::{Object, Payload};
use super::redact::Redactor;
use super::{Change, Record, RecordError};
use crate::clock::{Clock, Timestamp};
use crate::error::{ErrorCode, Refusal};
use crate::ids::{ApprovalId, CorrelationId, EventId, IdSource};
use crate::limits;

/// The system of an act that was given to a service outside.
pub const EXECUTOR: &str = "executor";

/// An act whose end is not recorded yet.
#[derive(Clone, PartialEq, Debug)]
pub struct OpenAct {
    /// The event that opened it.
    pub id: EventId,
    pub correlation_id: CorrelationId,
    pub actor: Actor,
    pub tool: String,
    pub action: Option<String>,
    /// The approval by which it may be done; it stays approved, and is nobody else's, until the end.
    pub approval: Option<UsedApproval>,
    pub run_id: Option<String>,
    /// The systems that have not told how it went there; empty for an act upon one only.
    pub systems: Vec<String>,
    pub opened_at: Timestamp,
    /// The request for which it is done once; none where nobody could send it again.
    pub asked: Option<Box<AskedAct>>,
}

/// An approval as it stands while its act is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsedApproval {
    pub id: ApprovalId,
    pub version: u64,
}

/// What happens to an open act.
#[derive(Clone, PartialEq, Debug)]
pub enum ActChange {
    /// Refused where its approval is used already, or given no longer, and where its request came before.
    Open(OpenAct),
    /// One of its systems told how it went there.
    Told { act: EventId, system: String },
    /// It has ended. What is kept answers its request from now on; where nothing is, it was never done, and the same
    /// request may do it yet.
    Close { act: EventId, kept: Option<KeptOutcome> },
}

/// How an act went, or a part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending<'a> {
    Applied,
    Failed { code: ErrorCode, reason: &'a str },
}

impl<'a> Ending<'a> {
    /// The end of an act whose process is gone.
    pub const ABANDONED: Ending<'static> = Ending::Failed {
        code: ErrorCode::Abandoned,
        reason: "the server stopped while this was done",
    };

    pub fn of<T>(outcome: &'a Result<T, Refusal>) -> Self {
        match outcome {
            Ok(_) => Self::Applied,
            Err(refusal) => Self::Failed {
                code: refusal.code,
                reason: &refusal.message,
            },
        }
    }

    /// What answers the request of an act that nobody is there to tell of.
    pub fn kept(&self) -> Option<KeptOutcome> {
        match self {
            Self::Applied => None,
            Self::Failed { code, reason } => Some(KeptOutcome::failed(*code, reason)),
        }
    }

    pub fn state(&self) -> ApprovalState {
        match self {
            Self::Applied => ApprovalState::Applied,
            Self::Failed { .. } => ApprovalState::Failed,
        }
    }
}

impl OpenAct {
    /// The parts of it whose ends are told by whoever closes it: the systems that have not told by themselves,
    /// or the whole of an act upon one only.
    pub fn untold<'a>(&'a self, has_told: impl Fn(&str) -> bool + 'a) -> impl Iterator<Item = Option<&'a str>> {
        let whole = self.systems.is_empty().then_some(None);
        let left = self.systems.iter().map(String::as_str);
        let left = left.filter(move |system| *system != EXECUTOR && !has_told(system));
        whole.into_iter().chain(left.map(Some))
    }

    /// The event of an end, whole or in one system. The reason must be free of secrets.
    pub fn ended(&self, system: Option<&str>, ending: Ending<'_>, by: Actor, now: Timestamp, ids: &IdSource) -> Draft {
        let payload = Object::new()
            .text("act_id", self.id.as_str())
            .text("tool", &self.tool)
            .optional_text("action", self.action.as_deref())
            .optional_text("system", system)
            .optional_text("approval_id", self.approval.as_ref().map(|used| used.id.as_str()))
            .optional_text("run_id", self.run_id.as_deref());
        let (kind, payload) = match ending {
            Ending::Applied => (EventType::ActApplied, payload),
            Ending::Failed { code, reason } => {
                let reason: String = reason.chars().take(limits::REASON_CHARS_MAX).collect();
                let payload = payload.text("code", code.name()).text("reason", &reason);
                (EventType::ActFailed, payload)
            }
        };
        let event = Draft::new(
            ids.event(),
            now,
            self.correlation_id.clone(),
            by,
            kind,
            payload.finish(),
        );
        match &self.approval {
            Some(_) => event.in_state(ending.state()),
            None => event,
        }
    }
}

/// Where an act under way tells the record how it goes.
#[derive(Clone)]
pub struct ActJournal {
    parts: JournalParts,
    open: Arc<OpenAct>,
    told: Arc<Mutex<BTreeSet<String>>>,
}

/// What a journal is made of.
#[derive(Clone)]
pub struct JournalParts {
    pub record: Arc<dyn Record>,
    pub redactor: Redactor,
    pub clock: Clock,
    pub ids: IdSource,
}

impl std::fmt::Debug for ActJournal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ActJournal({})", self.open.id)
    }
}

impl ActJournal {
    pub fn new(parts: JournalParts, open: OpenAct) -> Self {
        Self {
            parts,
            open: Arc::new(open),
            told: Arc::default(),
        }
    }

    pub fn act(&self) -> &OpenAct {
        &self.open
    }

    /// Tells how it went in one system, in one transaction with what else changed by it.
    pub async fn tell(&self, system: &str, ending: Ending<'_>, with: Change) -> Result<(), RecordError> {
        let mut change = with;
        change.events.push(self.event(Some(system), ending));
        change.act = Some(ActChange::Told {
            act: self.open.id.clone(),
            system: system.to_owned(),
        });
        self.parts.record.commit(change).await?;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(system.to_owned());
        Ok(())
    }

    /// What answers its request from now on; nothing where nobody could send that again.
    pub fn kept(&self, outcome: &Result<Map<String, Value>, Refusal>) -> Option<KeptOutcome> {
        self.open.asked.as_ref()?;
        Some(KeptOutcome::of(outcome, &self.parts.redactor))
    }

    /// What closes the act: the events of whatever did not tell by itself.
    pub fn closing<T>(&self, outcome: &Result<T, Refusal>, kept: Option<KeptOutcome>) -> Change {
        let ending = Ending::of(outcome);
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let untold = self.open.untold(|system| told.contains(system));
        Change {
            events: untold.map(|system| self.event(system, ending)).collect(),
            act: Some(ActChange::Close {
                act: self.open.id.clone(),
                kept,
            }),
            ..Change::default()
        }
    }

    fn event(&self, system: Option<&str>, ending: Ending<'_>) -> Draft {
        let JournalParts {
            redactor, clock, ids, ..
        } = &self.parts;
        let by = self.open.actor.clone();
        match ending {
            Ending::Applied => self.open.ended(system, ending, by, clock.now(), ids),
            Ending::Failed { code, reason } => {
                let reason = &redactor.redact_text(reason);
                self.open
                    .ended(system, Ending::Failed { code, reason }, by, clock.now(), ids)
            }
        }
    }
}

/// What was put right of an act that had ended without being whole, under the act's own correlation id.
pub struct Mended<'a> {
    pub correlation_id: &'a CorrelationId,
    pub tool: &'a str,
    pub action: Option<&'a str>,
    pub system: Option<&'a str>,
    /// What was found and done, in words.
    pub outcome: &'a str,
}

impl Mended<'_> {
    pub fn event(&self, now: Timestamp, ids: &IdSource) -> Draft {
        let payload: Payload = Object::new()
            .text("tool", self.tool)
            .optional_text("action", self.action)
            .optional_text("system", self.system)
            .flag("repair", true)
            .text("outcome", self.outcome)
            .finish();
        let (id, by) = (ids.event(), Actor::system("repair"));
        Draft::new(id, now, self.correlation_id.clone(), by, EventType::ActApplied, payload)
    }
}
