//! One call's own thread through the record: takes the steps of its life, in their legal order, and
//! collects the events they leave until the next commit.

use super::event::{Actor, ApprovalState, Draft};
use super::payload::Payload;
use crate::call::{self, State, Step};
use crate::clock::Clock;
use crate::ids::{CorrelationId, EventId, IdSource};

pub struct Trace {
    pub correlation_id: CorrelationId,
    actor: Actor,
    state: State,
    pending: Vec<Draft>,
    ids: IdSource,
    clock: Clock,
}

impl Trace {
    pub fn new(correlation_id: CorrelationId, actor: Actor, ids: IdSource, clock: Clock) -> Self {
        Self {
            correlation_id,
            actor,
            state: State::New,
            pending: Vec::new(),
            ids,
            clock,
        }
    }

    /// Takes a step and keeps its event; the payload must be redacted.
    pub fn step(&mut self, step: Step, payload: Payload) -> EventId {
        let event_id = self.ids.event();
        self.step_as(step, event_id.clone(), None, payload);
        event_id
    }

    /// A step about an approval, by whoever asked or decided.
    pub fn approval(&mut self, step: Step, state: ApprovalState, by: Option<Actor>, payload: Payload) {
        let event_id = self.ids.event();
        self.step_as(step, event_id, Some((state, by)), payload);
    }

    /// The closing step, under an id that its payload already names.
    pub fn close(&mut self, step: Step, event_id: EventId, payload: Payload) {
        self.step_as(step, event_id, None, payload);
    }

    pub fn take(&mut self) -> Vec<Draft> {
        std::mem::take(&mut self.pending)
    }

    fn step_as(&mut self, step: Step, id: EventId, approval: Option<(ApprovalState, Option<Actor>)>, payload: Payload) {
        self.state = call::transition(self.state, step).expect("the spine takes only legal steps");
        let (state, by) = approval.map_or((None, None), |(state, by)| (Some(state), by));
        let actor = by.unwrap_or_else(|| self.actor.clone());
        let mut draft = Draft::new(
            id,
            self.clock.now(),
            self.correlation_id.clone(),
            actor,
            call::recorded_as(step),
            payload,
        );
        draft.approval_state = state;
        self.pending.push(draft);
    }
}
