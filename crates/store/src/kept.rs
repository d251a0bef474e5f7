//! Proving what is kept beside the chain: each closing event tells a digest of its command's output and result.
//!
//! First the events are asked what they tell, then every kept row is held against that. A row that no event tells of is one
//! of an older program, or outlived its event; but where an event's own row is not found and another stands under the same
//! request, that one was changed. A row that is missing is none of this: rows go with their time.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use countersign_gateway::audit::chain::{Columns, Hash};
use countersign_gateway::audit::kept::{self, Kept};

use crate::prove::{Fault, Flaw};

/// What events tell. A few dozen bytes for each.
#[derive(Default)]
pub(crate) struct Told {
    by_digest: HashMap<Hash, Place>,
    chains: Vec<String>,
    names: RandomState,
    /// Requests of which a row was found that no event tells of.
    strangers: Vec<u64>,
}

/// Where an event stands, and of which request it is, by its hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    chain: usize,
    seq: u64,
    name: u64,
}

impl Told {
    /// Takes in an event that was proved.
    pub(crate) fn hear(&mut self, seq: u64, event: &Columns<'_>) {
        if let Some((request_id, digest)) = kept::told(event.event_type, event.payload) {
            // Chains are walked one behind the other.
            if self.chains.last().is_none_or(|last| last != event.chain) {
                self.chains.push(event.chain.to_owned());
            }
            let place = Place {
                chain: self.chains.len() - 1,
                seq,
                name: self.names.hash_one(&*request_id),
            };
            self.by_digest.insert(digest, place);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_digest.is_empty()
    }

    /// Holds a row against what was told.
    pub(crate) fn see(&mut self, row: &Kept<'_>) {
        if self.by_digest.remove(&row.digest()).is_none() {
            self.strangers.push(self.names.hash_one(row.request_id));
        }
    }

    /// The first event whose command is not kept as it tells, named with its chain.
    pub(crate) fn judge(mut self) -> Result<(), Flaw> {
        self.strangers.sort_unstable();
        let places = self.by_digest.values();
        let changed = places.filter(|place| self.strangers.binary_search(&place.name).is_ok());
        match changed.min() {
            Some(place) => Err(Fault::KeptChanged.at(place.seq).of(&self.chains[place.chain])),
            None => Ok(()),
        }
    }
}
