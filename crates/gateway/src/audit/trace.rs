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

    /// Goes on where a call stood that waits for an answer: what led there is in the record.
    #[must_use]
    pub fn waiting(mut self) -> Self {
        self.state = State::Waiting;
        self
    }

    /// Takes a step and keeps its event; the payload must be redacted.
    pub fn step(&mut self, step: Step, payload: Payload) -> EventId {
        let event_id = self.ids.event();
        self.step_as(step, event_id.clone(), payload);
        event_id
    }

    /// Notes where an approval stands on the last event.
    pub fn mark(&mut self, state: ApprovalState) {
        if let Some(last) = self.pending.last_mut() {
            last.approval_state = Some(state);
        }
    }

    /// A step whose event others write: the board records what is asked and decided.
    pub fn follow(&mut self, step: Step) {
        self.state = call::transition(self.state, step).expect("the spine takes only legal steps");
    }

    /// The closing step, under an id that its payload already names.
    pub fn close(&mut self, step: Step, event_id: EventId, payload: Payload) {
        self.step_as(step, event_id, payload);
    }

    pub fn take(&mut self) -> Vec<Draft> {
        std::mem::take(&mut self.pending)
    }

    /// Events that were taken and not written after all; nothing was stepped since.
    pub fn put_back(&mut self, events: Vec<Draft>) {
        self.pending.splice(0..0, events);
    }

    fn step_as(&mut self, step: Step, id: EventId, payload: Payload) {
        self.follow(step);
        let draft = Draft::new(
            id,
            self.clock.now(),
            self.correlation_id.clone(),
            self.actor.clone(),
            call::recorded_as(step),
            payload,
        );
        self.pending.push(draft);
    }
}
