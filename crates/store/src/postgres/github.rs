//! Leases, deliveries of GitHub's, and the comments of runs, as they are kept.
//!
//! How long a lease lasts is told by the database's clock alone: a node whose own is wrong, or that slept, must not
//! have one longer than the others believe. What this node's own dead processes had is free at once, since here the
//! system tells that they are gone.

use std::time::Duration;

use countersign_gateway::audit::{Pending, RecordError};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::github::delivery::{Deliveries, Delivery, DeliveryChange};
use countersign_gateway::github::message::{KeptMessage, Messages, Untold};
use countersign_gateway::lease::LeaseChange;

use super::PgStore;
use super::ledger::Ledger;
use super::trouble::Trouble;
use crate::rows::at_most;
use crate::rows::github::{COLUMNS, delivery, select_untold, untold};

const TAKE: &str = "INSERT INTO leases (name, holder, until_ms) VALUES ($1, $2, clock_ms() + $3)
     ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until_ms = clock_ms() + $3
     WHERE leases.until_ms <= clock_ms() OR leases.holder = excluded.holder";
/// Locks it too: nobody takes it before what was done under it is written.
const HAS: &str = "SELECT 1 FROM leases WHERE name = $1 AND holder = $2 FOR UPDATE";
const RETURN: &str = "DELETE FROM leases WHERE name = $1 AND holder = $2";
const HOLDER: &str = "SELECT holder FROM leases WHERE name = $1";
const INSERT_DELIVERY: &str =
    "INSERT INTO webhook_deliveries (delivery_id, version, event, correlation_id, state, task,
         tries, not_before_ms, received_at_ms)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING";
const ADVANCE_DELIVERY: &str = "UPDATE webhook_deliveries SET version = $3, state = $4, task = $5, tries = $6,
         not_before_ms = $7
     WHERE delivery_id = $1 AND version = $2 AND state = 'pending'";
const KEEP_MESSAGE: &str = "INSERT INTO run_messages (run_id, comment_id, run_version, text, labels_done, tries,
         not_before_ms)
     VALUES ($1, $2, $3, $4, $5, $6, $7)
     ON CONFLICT (run_id) DO UPDATE SET comment_id = excluded.comment_id, run_version = excluded.run_version,
         text = excluded.text, labels_done = excluded.labels_done, tries = excluded.tries,
         not_before_ms = excluded.not_before_ms";

impl Ledger<'_> {
    /// Tells the first lease that somebody else has. Who holds one is kept with their process.
    pub(super) fn write_leases(&self, changes: &[LeaseChange]) -> Result<Option<RecordError>, Trouble> {
        let here = |holder: &str| format!("{} {holder}", self.process());
        for change in changes {
            let (name, has_it) = match change {
                LeaseChange::Take { name, holder, time, .. } => {
                    self.end_own_dead_lease(name)?;
                    let taken = self.link.execute(TAKE, &[name, &here(holder), &millis(*time)])?;
                    (name, taken == 1)
                }
                LeaseChange::Has { name, holder } => (name, self.link.exists(HAS, &[name, &here(holder)])?),
                LeaseChange::Return { name, holder } => {
                    self.link.execute(RETURN, &[name, &here(holder)])?;
                    (name, true)
                }
            };
            if !has_it {
                return Ok(Some(RecordError::LeaseTaken(name.clone())));
            }
        }
        Ok(None)
    }

    /// Takes back what a process of this node had that is gone. Of other nodes' processes nobody can tell before the
    /// lease is over: one that is silent may still be at it.
    fn end_own_dead_lease(&self, name: &str) -> Result<(), Trouble> {
        let held = self
            .link
            .first(HOLDER, &[&name], |row| Ok(row.try_get::<_, String>(0)?))?;
        let Some(holder) = held else { return Ok(()) };
        let process = holder.split_once(' ').map_or("", |(process, _)| process);
        if self.site.node.has_lost(process) {
            self.link.execute(RETURN, &[&name, &holder])?;
        }
        Ok(())
    }

    /// Tells the first delivery that came before, or that has moved on.
    pub(super) fn write_deliveries(&self, changes: &[DeliveryChange]) -> Result<Option<RecordError>, Trouble> {
        for DeliveryChange { delivery, from } in changes {
            let task = delivery.task.as_ref().map(|task| task.to_json().to_string());
            let written = match from {
                None => self.link.execute(
                    INSERT_DELIVERY,
                    &[
                        &delivery.id,
                        &delivery.version.cast_signed(),
                        &delivery.event,
                        &delivery.correlation_id.as_str(),
                        &delivery.state.as_str(),
                        &task,
                        &i64::from(delivery.tries),
                        &delivery.not_before.as_millis(),
                        &delivery.received_at.as_millis(),
                    ],
                )?,
                Some(from) => self.link.execute(
                    ADVANCE_DELIVERY,
                    &[
                        &delivery.id,
                        &from.cast_signed(),
                        &delivery.version.cast_signed(),
                        &delivery.state.as_str(),
                        &task,
                        &i64::from(delivery.tries),
                        &delivery.not_before.as_millis(),
                    ],
                )?,
            };
            if written != 1 {
                return Ok(Some(RecordError::DeliveryKnown(delivery.id.clone())));
            }
        }
        Ok(None)
    }

    pub(super) fn write_messages(&self, messages: &[KeptMessage]) -> Result<(), Trouble> {
        for message in messages {
            self.link.execute(
                KEEP_MESSAGE,
                &[
                    &message.run_id.as_str(),
                    &message.comment_id.map(u64::cast_signed),
                    &message.run_version.cast_signed(),
                    &message.text,
                    &message.labels_done,
                    &i64::from(message.tries),
                    &message.not_before.as_millis(),
                ],
            )?;
        }
        Ok(())
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

impl Deliveries for PgStore {
    fn pending_deliveries(&self, now: Timestamp, limit: usize) -> Pending<Result<Vec<Delivery>, RecordError>> {
        self.read(move |readers| {
            let sql = format!(
                "SELECT {COLUMNS} FROM webhook_deliveries WHERE state = 'pending' AND not_before_ms <= $1
                 ORDER BY received_at_ms, delivery_id LIMIT $2"
            );
            readers.all(&sql, &[&now.as_millis(), &at_most(limit)], delivery)
        })
    }
}

impl Messages for PgStore {
    fn untold(&self, now: Timestamp, limit: usize) -> Pending<Result<Vec<Untold>, RecordError>> {
        self.read(move |readers| {
            let sql = format!(
                "{} AND (m.run_id IS NULL OR m.not_before_ms <= $1) ORDER BY runs.updated_at_ms LIMIT $2",
                select_untold()
            );
            readers.all(&sql, &[&now.as_millis(), &at_most(limit)], untold)
        })
    }
}
