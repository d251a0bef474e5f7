//! Acts that are no commands, and the end of those whose process is gone.

use countersign_gateway::approval::lifecycle::ApprovalStep;
use countersign_gateway::approval::request::{ApprovalChange, ApprovalRequest};
use countersign_gateway::audit::Change;
use countersign_gateway::audit::act::{ActChange, Ending, OpenAct, UsedApproval};
use countersign_gateway::audit::event::{Actor, ActorType, ApprovalState, EventType};
use countersign_gateway::audit::outcome::{KeptOutcome, StoredAct};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{ApprovalId, CorrelationId, EventId, IdSource};
use serde_json::Value;

use super::Cells;
use crate::proved::Proved;

/// Open acts as [`act`] reads them, and at [`PROCESS`] whose each is.
pub(crate) const OPEN_ACTS: &str =
    "SELECT act_id, correlation_id, actor_type, actor_id, tool, action, approval_id, run_id,
         systems, opened_at_ms, process
     FROM open_acts ORDER BY opened_at_ms";
pub(crate) const PROCESS: usize = 10;
/// How many are ended at once.
pub(crate) const AT_ONCE: &str = "LIMIT 500";

/// Who ends what others left.
pub(crate) const SWEEPER: &str = "sweeper";

/// The events of an act: its opening, and how it went.
pub(crate) const TELLING: [&str; 3] = [
    EventType::ActRequested.as_str(),
    EventType::ActApplied.as_str(),
    EventType::ActFailed.as_str(),
];

/// What the events of its call tell of an act whose row lies among the open ones.
pub(crate) enum Standing {
    /// It is open: as its opening tells of it, with the parts whose ends nobody has told yet.
    Open(Box<OpenAct>, Vec<Option<String>>),
    /// Its end is in the record.
    Ended,
    /// There was no such opening.
    Added,
}

/// Of the row only the id is believed.
pub(crate) fn standing<'e>(row: &OpenAct, events: impl Iterator<Item = &'e Proved> + Clone) -> Standing {
    let of_call = |event: &&Proved| event.correlation_id == row.correlation_id.as_str();
    let opens = |event: &&Proved| event.event_type == TELLING[0] && event.event_id == row.id.as_str();
    let Some(opening) = events.clone().filter(of_call).find(opens) else {
        return Standing::Added;
    };
    let act = opened(row, &serde_json::from_str(&opening.payload).unwrap_or_default());
    let ends = events
        .filter(of_call)
        .filter_map(|event| End::read(&event.event_type, &event.payload));
    let told: Vec<Option<String>> = ends
        .filter(|end| end.act == act.id.as_str())
        .map(|end| end.system)
        .collect();
    if told.contains(&None) {
        return Standing::Ended;
    }
    let has_told = |system: &str| told.iter().flatten().any(|it| it == system);
    let untold = act.untold(has_told).map(|part| part.map(str::to_owned)).collect();
    Standing::Open(Box::new(act), untold)
}

/// An act as the event of its opening tells of it.
fn opened(row: &OpenAct, told: &Value) -> OpenAct {
    let said = |name: &str| told[name].as_str().map(str::to_owned);
    let systems = told["systems"].as_array().into_iter().flatten();
    OpenAct {
        tool: said("tool").unwrap_or_default(),
        action: said("action"),
        approval: said("approval_id").map(|id| UsedApproval {
            id: ApprovalId::trusted(id),
            version: 0,
        }),
        run_id: said("run_id"),
        systems: systems.filter_map(Value::as_str).map(str::to_owned).collect(),
        ..row.clone()
    }
}

/// What an event tells of the end of an act, or of a part of it.
pub(crate) struct End {
    pub(crate) act: String,
    pub(crate) system: Option<String>,
}

impl End {
    /// None for other events.
    pub(crate) fn read(event_type: &str, payload: &str) -> Option<Self> {
        if !TELLING[1..].contains(&event_type) {
            return None;
        }
        let told: Value = serde_json::from_str(payload).ok()?;
        Some(Self {
            act: told["act_id"].as_str()?.to_owned(),
            system: told["system"].as_str().map(str::to_owned),
        })
    }
}

/// Holds the row of an open act against the events of its call.
pub(crate) fn prove_open(row: &OpenAct, events: &[Proved]) -> Result<(), String> {
    let id = &row.id;
    match standing(row, events.iter()) {
        Standing::Open(told, _) => {
            let of = |act: &OpenAct| {
                let approval = act.approval.as_ref().map(|used| used.id.clone());
                (act.tool.clone(), act.action.clone(), approval, act.run_id.clone())
            };
            if of(row) == of(&told) {
                return Ok(());
            }
            Err(format!(
                "the row of the open act `{id}` was changed, it is not what its opening tells of"
            ))
        }
        Standing::Ended => Err(format!("the act `{id}` has ended, somebody put its open row back")),
        Standing::Added => Err(format!("an open act `{id}` was added, no event tells of it")),
    }
}

/// An act that its process left open, as its events tell of it.
pub(crate) struct Left {
    act: OpenAct,
    untold: Vec<Option<String>>,
    /// The approval that let it go.
    pub(crate) approval: Option<ApprovalRequest>,
}

impl Left {
    /// None where the record does not know that it is open: nothing is signed that somebody put there.
    pub(crate) fn vouched(row: &OpenAct, proved: &[Proved]) -> Option<Self> {
        if let Standing::Open(act, untold) = standing(row, proved.iter()) {
            let act = *act;
            return Some(Self {
                act,
                untold,
                approval: None,
            });
        }
        tracing::error!(
            act = row.id.as_str(),
            "an act lies among the open ones that no event tells of, or that has ended; it is not ended, and `audit verify` tells of it"
        );
        None
    }

    /// The approval to look up.
    pub(crate) fn approval_id(&self) -> Option<&str> {
        self.act.approval.as_ref().map(|used| used.id.as_str())
    }

    /// Its end, which the sweeper tells: one event for each part that has not told how it went there.
    pub(crate) fn closing(self, now: Timestamp, ids: &IdSource) -> Change {
        let Self { act, untold, approval } = self;
        let event = |system: &Option<String>| {
            let by = Actor::system(SWEEPER);
            act.ended(system.as_deref(), Ending::ABANDONED, by, now, ids)
        };
        let events = untold.iter().map(event).collect();
        let given = approval.filter(|approval| approval.state() == ApprovalState::Approved);
        let failed = given.and_then(|approval| {
            let from = Some(approval.version);
            let approval = approval.step(ApprovalStep::Fail, now).ok()?;
            Some(ApprovalChange { approval, from })
        });
        Change {
            events,
            approvals: failed.into_iter().collect(),
            act: Some(ActChange::Close {
                act: act.id.clone(),
                kept: Ending::ABANDONED.kept(),
            }),
            only_if_open: true,
            ..Change::default()
        }
    }
}

pub(crate) fn act<R: Cells>(row: &R) -> Result<OpenAct, R::Error> {
    Ok(OpenAct {
        id: EventId::trusted(row.text(0)?),
        correlation_id: CorrelationId::trusted(row.text(1)?),
        actor: Actor {
            kind: ActorType::parse(&row.text(2)?).unwrap_or(ActorType::System),
            id: row.text(3)?,
        },
        tool: row.text(4)?,
        action: row.any_text(5)?,
        approval: row.any_text(6)?.map(|id| UsedApproval {
            id: ApprovalId::trusted(id),
            // Only asked for when an act is opened.
            version: 0,
        }),
        run_id: row.any_text(7)?,
        systems: read_systems(&row.text(8)?),
        opened_at: row.time(9)?,
        // Only needed to open it.
        asked: None,
    })
}

pub(crate) fn stored(outcome: Option<String>) -> StoredAct {
    outcome.map_or(StoredAct::Open, |text| StoredAct::Ended(KeptOutcome::trusted(text)))
}

pub(crate) fn read_systems(text: &str) -> Vec<String> {
    serde_json::from_str(text).unwrap_or_default()
}

pub(crate) fn write_systems(systems: &[String]) -> String {
    Value::from(systems).to_string()
}
