//! `approvals`: what waits for a person, shown and decided at the machine.
//!
//! Who may open the state directory is an operator; the record calls them by their user name. Deciding
//! wakes the process that waits, and where that is missed it notices a moment later.

pub(crate) mod decide;
pub(crate) mod keys;
mod list;
mod show;
mod watch;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use countersign_gateway::approval::ballot::{Ballot, Choice, Decider, OwnRequests};
use countersign_gateway::approval::board::Board;
use countersign_gateway::approval::question::Given;
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::approval::{Alone, Bell};
use countersign_gateway::audit::event::ApprovalState;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::error::Refusal;
use countersign_gateway::policy::standing::{ProposedRule, StandingRules as _};
use countersign_gateway::session::Caller;
use countersign_store::{Durability, Store};
use serde_json::Value;

use crate::cli::Approvals;
use crate::commands::audit::{self, Form};
use crate::config::{Flags, OperatorsFile, StandingParts};
use crate::start::Started;
use crate::terminal::Tone;
use crate::wiring;

pub(crate) fn run(flags: &Flags, approvals: &Approvals) -> anyhow::Result<ExitCode> {
    match approvals {
        Approvals::List {
            all,
            status,
            limit,
            json,
        } => {
            let filter = list::filter(*all, status.as_deref(), *limit as usize);
            list::run(flags, filter, Form::of(*json))?;
        }
        Approvals::Show { id, json } => show::run(flags, id, Form::of(*json))?,
        Approvals::Watch => watch::run(flags)?,
        Approvals::Approve(approve) => return decide::approve(flags, approve),
        Approvals::Deny(deny) => return decide::deny(flags, deny),
    }
    Ok(ExitCode::SUCCESS)
}

/// The board of a state directory, and who looks at it.
struct Office {
    board: Arc<Board>,
    rules: OperatorsFile,
    user: String,
    own_requests: OwnRequests,
}

impl Office {
    /// For a command that only looks.
    fn look(flags: &Flags) -> anyhow::Result<Self> {
        let (office, store) = Self::with(flags, |_, _| Arc::new(Alone))?;
        wiring::leave_unsigned(&store);
        Ok(office)
    }

    /// For a command that decides and ends.
    fn open(flags: &Flags) -> anyhow::Result<Self> {
        Ok(Self::with(flags, |store, directory| store.knock(directory))?.0)
    }

    /// For one that stays and wants to hear what happens; needs an event loop.
    fn open_to_stay(flags: &Flags) -> anyhow::Result<Self> {
        let (office, _) = Self::with(flags, wiring::bell)?;
        office.board.listen();
        Ok(office)
    }

    fn with(flags: &Flags, bell: impl FnOnce(&Store, &Path) -> Arc<dyn Bell>) -> anyhow::Result<(Self, Arc<Store>)> {
        audit::existing_record(flags)?;
        let started = Started::load(flags)?;
        let store = Arc::new(started.store(Durability::Power)?);
        let own_requests = if started.policy.approval.self_approval {
            OwnRequests::Allowed
        } else {
            OwnRequests::Refused
        };
        let bell = bell(&store, &started.settings.state_dir);
        let board = wiring::board(&store, &started.redactor(), bell, Vec::new());
        board.recognise(wiring::credentials(&store));
        let office = Self {
            rules: OperatorsFile::new(StandingParts {
                flags: started.flags.clone(),
                surroundings: started.surroundings.clone(),
                record: store.clone(),
                board: board.clone(),
                // The processes that serve read the file again when they hear of it.
                reload: None,
            }),
            board,
            user: wiring::user(),
            own_requests,
        };
        Ok((office, store))
    }

    /// Writes a rule in the name of whoever sits here.
    async fn adopt(&self, rule: ProposedRule) -> Result<(), Refusal> {
        self.rules.adopt(rule, &Caller::person(&self.user)).await
    }

    fn ballot(&self, choice: Choice, reason: &str, answer: Option<Given>) -> Ballot {
        Ballot {
            choice,
            by: Decider::person(&self.user, self.own_requests),
            reason: reason.to_owned(),
            answer,
        }
    }
}

/// A text of what is asked about; empty where there is none.
fn detail<'a>(approval: &'a ApprovalRequest, name: &str) -> &'a str {
    approval.details.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// What a person calls the act, or the question where there is none.
fn act(approval: &ApprovalRequest) -> &str {
    match (detail(approval, "command"), detail(approval, "question")) {
        ("", "") => &approval.tool,
        ("", question) => question,
        (command, _) => command,
    }
}

/// As much of an id as usually names it.
fn short(approval: &ApprovalRequest) -> &str {
    approval.id.as_str().get(..8).unwrap_or(approval.id.as_str())
}

fn tone(state: ApprovalState) -> Tone {
    match state {
        ApprovalState::Pending => Tone::Caution,
        ApprovalState::Approved | ApprovalState::AutoApproved | ApprovalState::Applied => Tone::Good,
        ApprovalState::Denied | ApprovalState::Expired | ApprovalState::Failed => Tone::Bad,
        ApprovalState::Withdrawn => Tone::Quiet,
    }
}

/// A time in the largest unit that says enough.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    match now.since(since).as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7_200 => format!("{} min", seconds / 60),
        seconds @ ..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}
