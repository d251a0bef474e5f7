//! Ends of acts that are no commands, as the events tell of them: none may be told twice by whoever ends what others left.
//!
//! The sweeper ends nothing whose end is in the record, so an end of its own behind another was had by a row that somebody put
//! among the open acts. A process that was slow, and was taken for gone, may still tell how its act really went.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use countersign_gateway::audit::chain::Columns;
use countersign_gateway::audit::event::ActorType;

use crate::prove::{Fault, Flaw};
use crate::rows::acts::{End, SWEEPER};

/// The ends that were heard, by act.
#[derive(Default)]
pub(crate) struct Ends {
    names: RandomState,
    heard: HashMap<u64, Vec<Heard>>,
    twice: Option<Flaw>,
}

/// An end, whole or in one system.
struct Heard {
    system: Option<u64>,
    chain: u64,
    seq: u64,
    is_swept: bool,
}

impl Ends {
    /// Takes in an event that was proved. Two parts of a chain are walked at once, so they come in any order.
    pub(crate) fn hear(&mut self, seq: u64, event: &Columns<'_>) {
        let Some(end) = End::read(event.event_type, event.payload) else {
            return;
        };
        let heard = Heard {
            system: end.system.map(|system| self.names.hash_one(system)),
            chain: self.names.hash_one(event.chain),
            seq,
            is_swept: event.actor_type == ActorType::System.as_str() && event.actor_id == SWEEPER,
        };
        let ends = self.heard.entry(self.names.hash_one(end.act)).or_default();
        if let Some(seq) = ends.iter().find_map(|other| other.repeats(&heard)) {
            let flaw = Fault::EndedTwice.at(seq).of(event.chain);
            self.twice = self.twice.take().or(Some(flaw));
        }
        ends.push(heard);
    }

    /// An end that should not be there.
    pub(crate) fn twice(&self) -> Option<&Flaw> {
        self.twice.as_ref()
    }
}

impl Heard {
    /// The place of that one of the two which should not be there.
    fn repeats(&self, other: &Self) -> Option<u64> {
        let is_of_one = self.system == other.system || self.system.is_none() || other.system.is_none();
        let (first, second) = if self.seq < other.seq {
            (self, other)
        } else {
            (other, self)
        };
        // What other nodes wrote stands in no order with this.
        let is_behind = first.chain == second.chain || first.is_swept;
        (is_of_one && second.is_swept && is_behind).then_some(second.seq)
    }
}
