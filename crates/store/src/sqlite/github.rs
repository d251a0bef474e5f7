//! Leases, deliveries of GitHub's, and the comments of runs, as they are kept.

use countersign_gateway::audit::{Pending, RecordError};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::github::delivery::{Deliveries, Delivery, DeliveryChange, DeliveryState, Task};
use countersign_gateway::github::message::{KeptMessage, Messages, Untold};
use countersign_gateway::ids::{CorrelationId, RunId};
use countersign_gateway::lease::LeaseChange;
use rusqlite::{OptionalExtension as _, Row, params};

use super::SqliteStore;
use super::ledger::Ledger;
use super::runs::{RUN_COLUMNS, read_run};
use crate::process::Process;

const TAKE: &str = "INSERT INTO leases (name, holder, until_ms) VALUES (?1, ?2, ?4)
     ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until_ms = excluded.until_ms
     WHERE leases.until_ms <= ?3 OR leases.holder = excluded.holder";
const RETURN: &str = "DELETE FROM leases WHERE name = ?1 AND holder = ?2";
const HOLDER: &str = "SELECT holder FROM leases WHERE name = ?1";
const INSERT_DELIVERY: &str =
    "INSERT INTO webhook_deliveries (delivery_id, version, event, correlation_id, state, task,
         tries, not_before_ms, received_at_ms)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING";
const ADVANCE_DELIVERY: &str = "UPDATE webhook_deliveries SET version = ?3, state = ?4, task = ?5, tries = ?6,
         not_before_ms = ?7
     WHERE delivery_id = ?1 AND version = ?2 AND state = 'pending'";
const KEEP_MESSAGE: &str = "INSERT INTO run_messages (run_id, comment_id, run_version, text, labels_done, tries,
         not_before_ms)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
     ON CONFLICT (run_id) DO UPDATE SET comment_id = excluded.comment_id, run_version = excluded.run_version,
         text = excluded.text, labels_done = excluded.labels_done, tries = excluded.tries,
         not_before_ms = excluded.not_before_ms";

impl Ledger<'_> {
    /// Tells the first lease that somebody else has. Who holds one is kept with their process: one whose process
    /// is gone holds nothing.
    pub(super) fn write_leases(&self, changes: &[LeaseChange]) -> rusqlite::Result<Option<RecordError>> {
        let here = |holder: &str| format!("{} {holder}", self.process());
        for change in changes {
            match change {
                LeaseChange::Take {
                    name,
                    holder,
                    now,
                    time,
                } => {
                    let holder = here(holder);
                    self.end_dead_lease(name)?;
                    let row = params![name, holder, now.as_millis(), now.after(*time).as_millis()];
                    if self.statement(TAKE)?.execute(row)? != 1 {
                        return Ok(Some(RecordError::LeaseTaken(name.clone())));
                    }
                }
                LeaseChange::Return { name, holder } => {
                    self.statement(RETURN)?.execute([name, &here(holder)])?;
                }
            }
        }
        Ok(None)
    }

    fn end_dead_lease(&self, name: &str) -> rusqlite::Result<()> {
        let mut statement = self.statement(HOLDER)?;
        let held = statement.query_row([name], |row| row.get::<_, String>(0)).optional()?;
        let Some(holder) = held else { return Ok(()) };
        let process = holder.split_once(' ').map_or("", |(process, _)| process);
        if !Process::is_alive(process) {
            self.statement(RETURN)?.execute([name, &holder])?;
        }
        Ok(())
    }

    /// Tells the first delivery that came before, or that has moved on.
    pub(super) fn write_deliveries(&self, changes: &[DeliveryChange]) -> rusqlite::Result<Option<RecordError>> {
        for DeliveryChange { delivery, from } in changes {
            let task = delivery.task.as_ref().map(|task| task.to_json().to_string());
            let written = match from {
                None => self.statement(INSERT_DELIVERY)?.execute(params![
                    delivery.id,
                    delivery.version.cast_signed(),
                    delivery.event,
                    delivery.correlation_id.as_str(),
                    delivery.state.as_str(),
                    task,
                    delivery.tries,
                    delivery.not_before.as_millis(),
                    delivery.received_at.as_millis(),
                ])?,
                Some(from) => self.statement(ADVANCE_DELIVERY)?.execute(params![
                    delivery.id,
                    from.cast_signed(),
                    delivery.version.cast_signed(),
                    delivery.state.as_str(),
                    task,
                    delivery.tries,
                    delivery.not_before.as_millis(),
                ])?,
            };
            if written != 1 {
                return Ok(Some(RecordError::DeliveryKnown(delivery.id.clone())));
            }
        }
        Ok(None)
    }

    pub(super) fn write_messages(&self, messages: &[KeptMessage]) -> rusqlite::Result<()> {
        for message in messages {
            self.statement(KEEP_MESSAGE)?.execute(params![
                message.run_id.as_str(),
                message.comment_id.map(u64::cast_signed),
                message.run_version.cast_signed(),
                message.text,
                message.labels_done,
                message.tries,
                message.not_before.as_millis(),
            ])?;
        }
        Ok(())
    }
}

impl Deliveries for SqliteStore {
    fn pending_deliveries(&self, now: Timestamp, limit: usize) -> Pending<Result<Vec<Delivery>, RecordError>> {
        self.read(move |readers| {
            let sql = "SELECT delivery_id, version, event, correlation_id, task, tries, not_before_ms, received_at_ms
                 FROM webhook_deliveries WHERE state = 'pending' AND not_before_ms <= ?1
                 ORDER BY received_at_ms, delivery_id LIMIT ?2";
            readers.all(
                sql,
                params![now.as_millis(), i64::try_from(limit).unwrap_or(i64::MAX)],
                delivery,
            )
        })
    }
}

impl Messages for SqliteStore {
    fn untold(&self, now: Timestamp, limit: usize) -> Pending<Result<Vec<Untold>, RecordError>> {
        self.read(move |readers| {
            let columns: Vec<String> = RUN_COLUMNS
                .split(',')
                .map(|name| format!("runs.{}", name.trim()))
                .collect();
            let sql = format!(
                "SELECT {}, m.run_id, m.comment_id, m.run_version, m.text, m.labels_done, m.tries, m.not_before_ms
                 FROM runs LEFT JOIN run_messages AS m ON m.run_id = runs.run_id
                 WHERE runs.issue_number IS NOT NULL AND runs.repository IS NOT NULL
                     AND (m.run_id IS NULL OR m.run_version < runs.version
                         OR m.labels_done = 0 AND runs.finished_at_ms IS NOT NULL)
                     AND (m.run_id IS NULL OR m.not_before_ms <= ?1)
                 ORDER BY runs.updated_at_ms LIMIT ?2",
                columns.join(", ")
            );
            let behind = columns.len();
            readers.all(
                &sql,
                params![now.as_millis(), i64::try_from(limit).unwrap_or(i64::MAX)],
                |row| Ok((read_run(row)?, message(row, behind)?)),
            )
        })
    }
}

fn delivery(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    let task: String = row.get(4)?;
    Ok(Delivery {
        id: row.get(0)?,
        version: row.get::<_, i64>(1)?.cast_unsigned(),
        event: row.get(2)?,
        correlation_id: CorrelationId::trusted(row.get::<_, String>(3)?),
        state: DeliveryState::Pending,
        task: serde_json::from_str(&task).ok().and_then(|task| Task::from_json(&task)),
        tries: row.get(5)?,
        not_before: Timestamp::from_millis(row.get(6)?),
        received_at: Timestamp::from_millis(row.get(7)?),
    })
}

fn message(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<KeptMessage>> {
    let Some(run_id) = row.get::<_, Option<String>>(at)? else {
        return Ok(None);
    };
    Ok(Some(KeptMessage {
        run_id: RunId::trusted(run_id),
        comment_id: row.get::<_, Option<i64>>(at + 1)?.map(i64::cast_unsigned),
        run_version: row.get::<_, i64>(at + 2)?.cast_unsigned(),
        text: row.get(at + 3)?,
        labels_done: row.get(at + 4)?,
        tries: row.get(at + 5)?,
        not_before: Timestamp::from_millis(row.get(at + 6)?),
    }))
}
