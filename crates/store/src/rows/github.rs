//! Deliveries of GitHub's, and the comments of runs.

use countersign_gateway::github::delivery::{Delivery, DeliveryState};
use countersign_gateway::github::message::{KeptMessage, Untold};
use countersign_gateway::github::task::Task;
use countersign_gateway::ids::{CorrelationId, RunId};

use super::{Cells, runs};

/// The columns that [`delivery`] reads, in its order.
pub(crate) const COLUMNS: &str =
    "delivery_id, version, event, correlation_id, task, tries, not_before_ms, received_at_ms";

/// One that is still to be worked off.
pub(crate) fn delivery<R: Cells>(row: &R) -> Result<Delivery, R::Error> {
    let task = row.text(4)?;
    Ok(Delivery {
        id: row.text(0)?,
        version: row.count(1)?,
        event: row.text(2)?,
        correlation_id: CorrelationId::trusted(row.text(3)?),
        state: DeliveryState::Pending,
        task: serde_json::from_str(&task).ok().and_then(|task| Task::from_json(&task)),
        tries: tries(row, 5)?,
        not_before: row.time(6)?,
        received_at: row.time(7)?,
    })
}

/// Runs of issues, each with its comment, of which GitHub does not know all yet. The rest of the question says whose
/// time has come.
pub(crate) fn select_untold() -> String {
    let columns: Vec<String> = runs::COLUMNS
        .split(',')
        .map(|name| format!("runs.{}", name.trim()))
        .collect();
    format!(
        "SELECT {}, m.run_id, m.comment_id, m.run_version, m.text, m.labels_done, m.tries, m.not_before_ms
         FROM runs LEFT JOIN run_messages AS m ON m.run_id = runs.run_id
         WHERE runs.issue_number IS NOT NULL AND runs.repository IS NOT NULL
             AND (m.run_id IS NULL OR m.run_version < runs.version
                 OR NOT m.labels_done AND runs.finished_at_ms IS NOT NULL)",
        columns.join(", ")
    )
}

pub(crate) fn untold<R: Cells>(row: &R) -> Result<Untold, R::Error> {
    Ok((runs::run(row)?, message(row, runs::COLUMN_COUNT)?))
}

fn message<R: Cells>(row: &R, at: usize) -> Result<Option<KeptMessage>, R::Error> {
    let Some(run_id) = row.any_text(at)? else {
        return Ok(None);
    };
    Ok(Some(KeptMessage {
        run_id: RunId::trusted(run_id),
        comment_id: row.any_count(at + 1)?,
        run_version: row.count(at + 2)?,
        text: row.text(at + 3)?,
        labels_done: row.flag(at + 4)?,
        tries: tries(row, at + 5)?,
        not_before: row.time(at + 6)?,
    }))
}

fn tries<R: Cells>(row: &R, column: usize) -> Result<u32, R::Error> {
    Ok(u32::try_from(row.whole(column)?).unwrap_or(u32::MAX))
}
