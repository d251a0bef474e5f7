//! The life of a command request: S0's `received -> validated -> dispatched -> completed`, with the
//! wait for an answer in between. Pure: state and event in, next state or a typed refusal out. The
//! spine drives it, and every step it takes is an event of the record.

use crate::audit::event::EventType;
use crate::error::Status;

/// Where a request stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nothing is known yet.
    New,
    Received,
    Validated,
    /// A question is open.
    Waiting,
    /// The question was answered with yes.
    Approved,
    Dispatched,
    Completed(Status),
}

/// What can happen to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Receive,
    Validate,
    Ask,
    Approve,
    Deny,
    Dispatch,
    Complete(Status),
}

/// A step that does not follow from the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a call that is {from:?} cannot {step:?}")]
pub struct IllegalStep {
    pub from: State,
    pub step: Step,
}

/// The one transition function.
pub fn transition(state: State, step: Step) -> Result<State, IllegalStep> {
    match (state, step) {
        (State::New, Step::Receive) => Ok(State::Received),
        (State::Received, Step::Validate) => Ok(State::Validated),
        // After a run that its confinement made fail, the question is whether to run again.
        (State::Validated | State::Dispatched, Step::Ask) => Ok(State::Waiting),
        (State::Waiting, Step::Approve) => Ok(State::Approved),
        // A denial says who and why; the completion that follows ends the request.
        (State::Waiting, Step::Deny) => Ok(State::Validated),
        (State::Validated | State::Approved, Step::Dispatch) => Ok(State::Dispatched),
        // Refusals end a request before anything runs; what ran ends as dispatched.
        (
            State::Received | State::Validated | State::Waiting | State::Approved | State::Dispatched,
            Step::Complete(status),
        ) if is_terminal(status) => Ok(State::Completed(status)),
        (
            State::New
            | State::Received
            | State::Validated
            | State::Waiting
            | State::Approved
            | State::Dispatched
            | State::Completed(_),
            _,
        ) => Err(IllegalStep { from: state, step }),
    }
}

/// The event that records a step.
pub fn recorded_as(step: Step) -> EventType {
    match step {
        Step::Receive => EventType::CommandReceived,
        Step::Validate => EventType::CommandValidated,
        Step::Ask => EventType::ApprovalRequested,
        Step::Approve => EventType::ApprovalApproved,
        Step::Deny => EventType::ApprovalDenied,
        Step::Dispatch => EventType::CommandDispatched,
        Step::Complete(_) => EventType::CommandCompleted,
    }
}

fn is_terminal(status: Status) -> bool {
    match status {
        Status::Ok | Status::Rejected | Status::Timeout | Status::Failed => true,
        Status::Running | Status::Pending => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [Step; 7] = [
        Step::Receive,
        Step::Validate,
        Step::Ask,
        Step::Approve,
        Step::Deny,
        Step::Dispatch,
        Step::Complete(Status::Ok),
    ];

    #[test]
    fn the_table_of_legal_steps() {
        let legal = |state: State| -> Vec<Step> {
            STEPS
                .into_iter()
                .filter(|step| transition(state, *step).is_ok())
                .collect()
        };
        let done = Step::Complete(Status::Ok);
        assert_eq!(legal(State::New), [Step::Receive]);
        assert_eq!(legal(State::Received), [Step::Validate, done]);
        assert_eq!(legal(State::Validated), [Step::Ask, Step::Dispatch, done]);
        assert_eq!(legal(State::Waiting), [Step::Approve, Step::Deny, done]);
        assert_eq!(legal(State::Approved), [Step::Dispatch, done]);
        assert_eq!(legal(State::Dispatched), [Step::Ask, done]);
        assert_eq!(legal(State::Completed(Status::Ok)), []);
    }

    #[test]
    fn a_call_never_completes_as_running_or_pending() {
        for status in [Status::Running, Status::Pending] {
            assert!(transition(State::Dispatched, Step::Complete(status)).is_err());
        }
    }

    #[test]
    fn nothing_is_dispatched_before_it_is_validated_or_while_a_question_is_open() {
        for state in [
            State::New,
            State::Received,
            State::Waiting,
            State::Dispatched,
            State::Completed(Status::Ok),
        ] {
            assert!(transition(state, Step::Dispatch).is_err(), "{state:?}");
        }
    }
}
