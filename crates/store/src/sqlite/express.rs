//! The short way for a caller that is alone: the change is written on the caller's own thread.
//!
//! Handing a change to the writer and the answer back costs two wake-ups, about as much as the flush
//! itself. A caller who has nothing else to do meanwhile can spare both. The lane has a connection of its
//! own and shares nothing with the writer but the database, which already knows how to keep two writers
//! apart. Whatever does not go smoothly here, a busy database or any error, goes to the writer instead,
//! which knows what to do about it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::Connection;

use super::applying::apply;
use super::ledger::{Ledger, Turn};
use super::site::{Identity, Site};
use super::trouble;
use crate::waiting::{Job, Outcome};

pub(super) struct Express {
    site: Arc<Site>,
    lane: Mutex<Lane>,
}

struct Lane {
    open: Option<Open>,
}

/// A connection, and the file that it writes.
struct Open {
    connection: Connection,
    file: Identity,
}

/// What came of trying.
pub(super) enum Tried {
    Written(Outcome),
    /// The writer has to do it.
    Not(Box<Job>),
}

impl Express {
    pub(super) fn new(site: Arc<Site>) -> Self {
        Self {
            site,
            lane: Mutex::new(Lane { open: None }),
        }
    }

    /// Writes the change here and now, if that can be done at once.
    pub(super) fn write(&self, job: Box<Job>) -> Tried {
        let Ok(mut lane) = self.lane.try_lock() else {
            return Tried::Not(job);
        };
        match lane.write(&self.site, &job) {
            Ok(outcome) => Tried::Written(outcome),
            Err(error) => {
                // Somebody else's turn is no reason to part with the connection; anything else is.
                if !trouble::is_busy(&error) {
                    lane.open = None;
                }
                Tried::Not(job)
            }
        }
    }
}

impl Lane {
    fn write(&mut self, site: &Site, job: &Job) -> rusqlite::Result<Outcome> {
        // A file that was moved away, or its log, is the writer's to complain about.
        let file = site.identity().map_err(|_| trouble::read_only())?;
        if site.has_lost_log(file) {
            return Err(trouble::read_only());
        }
        let open = match self.open.take().filter(|open| open.file == file) {
            Some(open) => self.open.insert(open),
            None => self.open.insert(Open {
                connection: site.connect_writer(Duration::ZERO)?,
                file,
            }),
        };
        let mut ledger = Ledger::over(&open.connection, site);
        let written = ledger.begin(Turn::NowOrNever).and_then(|mut head| {
            let outcome = apply(&mut ledger, &mut head, job)?;
            Ok((outcome, ledger.commit(&head)?))
        });
        match written {
            Ok((outcome, signed)) => {
                site.health.wrote();
                site.witness.tell(signed);
                Ok(outcome)
            }
            Err(error) => {
                ledger.roll_back();
                Err(error)
            }
        }
    }
}
