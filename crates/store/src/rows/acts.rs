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

/// Acts as [`act`] reads them, and at [`PROCESS`] whose each is.
pub(crate) const LEFT_OPEN: &str =
    "SELECT act_id, correlation_id, actor_type, actor_id, tool, action, approval_id, run_id,
         systems, opened_at_ms, process
     FROM open_acts ORDER BY opened_at_ms LIMIT 500";
pub(crate) const PROCESS: usize = 10;

/// The event that opens an act.
pub(crate) const OPENING: &str = EventType::ActRequested.as_str();

/// What the event of its opening says of an act, which has its id.
pub(crate) fn opening_of(act: &OpenAct, proved: &[Proved]) -> Option<String> {
    let of_it =
        |event: &&Proved| event.event_id == act.id.as_str() && event.correlation_id == act.correlation_id.as_str();
    proved.iter().find(of_it).map(|event| event.payload.clone())
}

/// An act that its process left open.
pub(crate) struct Left {
    pub(crate) act: OpenAct,
    /// What the event of its opening says; none where there is no such event.
    pub(crate) opening: Option<String>,
    /// The approval that let it go.
    pub(crate) approval: Option<ApprovalRequest>,
}

impl Left {
    /// Whether the record knows of the act as its row tells it.
    fn is_vouched(&self) -> bool {
        let told = self.opening.as_deref().map(serde_json::from_str::<Value>);
        let Some(Ok(told)) = told else { return false };
        let act = &self.act;
        let row = [
            ("tool", Some(act.tool.as_str())),
            ("action", act.action.as_deref()),
            ("approval_id", act.approval.as_ref().map(|used| used.id.as_str())),
            ("run_id", act.run_id.as_deref()),
        ];
        row.into_iter().all(|(name, value)| told[name].as_str() == value)
    }

    /// Its end, which the sweeper tells. None where its row is not what the record knows of: nothing is signed that
    /// somebody put there.
    pub(crate) fn closing(self, now: Timestamp, ids: &IdSource) -> Option<Change> {
        if self.is_vouched() {
            return Some(abandoned(&self.act, self.approval, now, ids));
        }
        tracing::error!(
            act = self.act.id.as_str(),
            "an open act lies in the record that no event tells of like this; it is not ended, and its approval is not touched"
        );
        None
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

/// The end of an act whose process is gone: one event for each system that has not told how it went there.
fn abandoned(act: &OpenAct, approval: Option<ApprovalRequest>, now: Timestamp, ids: &IdSource) -> Change {
    let event = |system: Option<&str>| act.ended(system, Ending::ABANDONED, Actor::system("sweeper"), now, ids);
    let events = act.untold(|_| false).map(event).collect();
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

pub(crate) fn read_systems(text: &str) -> Vec<String> {
    serde_json::from_str(text).unwrap_or_default()
}

pub(crate) fn write_systems(systems: &[String]) -> String {
    Value::from(systems).to_string()
}
