//! The life of an approval. Pure: state and step in, next state or a typed refusal out.
//!
//! ```text
//! pending -> approved -> applied | failed
//!         -> denied | expired | withdrawn
//! auto-approved -> applied | failed
//! ```
//!
//! `applied` is the moment the act is let go, which happens once; `failed` is an approval that was
//! given and never used. The database guards the same arrows.

use crate::audit::event::{ApprovalState, EventType};

/// What can happen to an approval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ApprovalStep {
    Approve,
    Deny,
    /// Nobody answered in time, which is a no.
    Expire,
    /// Whoever asked no longer wants it.
    Withdraw,
    /// The act is let go.
    Apply,
    /// Approved, but the act did not come to be.
    Fail,
}

/// A step that does not follow from the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an approval that is {} cannot {step:?}", from.as_str())]
pub struct IllegalApprovalStep {
    pub from: ApprovalState,
    pub step: ApprovalStep,
}

/// The one transition function.
pub fn transition(state: ApprovalState, step: ApprovalStep) -> Result<ApprovalState, IllegalApprovalStep> {
    use ApprovalState::{Applied, Approved, AutoApproved, Denied, Expired, Failed, Pending, Withdrawn};
    match (state, step) {
        (Pending, ApprovalStep::Approve) => Ok(Approved),
        (Pending, ApprovalStep::Deny) => Ok(Denied),
        (Pending, ApprovalStep::Expire) => Ok(Expired),
        (Pending, ApprovalStep::Withdraw) => Ok(Withdrawn),
        (Approved | AutoApproved, ApprovalStep::Apply) => Ok(Applied),
        (Approved | AutoApproved, ApprovalStep::Fail) => Ok(Failed),
        (Pending | Approved | AutoApproved | Denied | Expired | Withdrawn | Applied | Failed, _) => {
            Err(IllegalApprovalStep { from: state, step })
        }
    }
}

/// The event that records a step.
pub fn recorded_as(step: ApprovalStep) -> EventType {
    match step {
        ApprovalStep::Approve => EventType::ApprovalApproved,
        ApprovalStep::Deny => EventType::ApprovalDenied,
        ApprovalStep::Expire => EventType::ApprovalExpired,
        ApprovalStep::Withdraw => EventType::ApprovalWithdrawn,
        ApprovalStep::Apply => EventType::ActApplied,
        ApprovalStep::Fail => EventType::ActFailed,
    }
}

/// S1's status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ApprovalStatus {
    Pending,
    Approved,
    Denied,
    AutoApproved,
}

impl ApprovalStatus {
    pub const ALL: [Self; 4] = [Self::Pending, Self::Approved, Self::Denied, Self::AutoApproved];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::AutoApproved => "auto-approved",
        }
    }
}

/// What S1 calls a state. One that expired or was withdrawn was not approved.
pub fn status(state: ApprovalState) -> ApprovalStatus {
    match state {
        ApprovalState::Pending => ApprovalStatus::Pending,
        ApprovalState::Approved | ApprovalState::Applied | ApprovalState::Failed => ApprovalStatus::Approved,
        ApprovalState::Denied | ApprovalState::Expired | ApprovalState::Withdrawn => ApprovalStatus::Denied,
        ApprovalState::AutoApproved => ApprovalStatus::AutoApproved,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STEPS: [ApprovalStep; 6] = [
        ApprovalStep::Approve,
        ApprovalStep::Deny,
        ApprovalStep::Expire,
        ApprovalStep::Withdraw,
        ApprovalStep::Apply,
        ApprovalStep::Fail,
    ];

    #[test]
    fn the_table_of_legal_steps() {
        let legal = |state| -> Vec<ApprovalStep> {
            STEPS
                .into_iter()
                .filter(|step| transition(state, *step).is_ok())
                .collect()
        };
        use ApprovalStep::{Apply, Approve, Deny, Expire, Fail, Withdraw};
        for state in ApprovalState::ALL {
            let expected: &[ApprovalStep] = match state {
                ApprovalState::Pending => &[Approve, Deny, Expire, Withdraw],
                ApprovalState::Approved | ApprovalState::AutoApproved => &[Apply, Fail],
                ApprovalState::Denied
                | ApprovalState::Expired
                | ApprovalState::Withdrawn
                | ApprovalState::Applied
                | ApprovalState::Failed => &[],
            };
            assert_eq!(legal(*state), expected, "{state:?}");
        }
    }

    #[test]
    fn the_words_of_s1() {
        for (state, word) in [
            ("pending", "pending"),
            ("approved", "approved"),
            ("applied", "approved"),
            ("failed", "approved"),
            ("denied", "denied"),
            ("expired", "denied"),
            ("withdrawn", "denied"),
            ("auto-approved", "auto-approved"),
        ] {
            assert_eq!(status(ApprovalState::parse(state).unwrap()).as_str(), word, "{state}");
        }
    }

    proptest! {
        /// Whatever is tried in whatever order: applied is reached through approved only, at most once,
        /// and a no is never followed by anything.
        #[test]
        fn an_act_is_let_go_once_and_only_after_a_yes(tried in proptest::collection::vec(0..STEPS.len(), 0..24)) {
            let mut state = ApprovalState::Pending;
            let (mut yes, mut no, mut applied) = (0, 0, 0);
            for step in tried.into_iter().map(|index| STEPS[index]) {
                let Ok(next) = transition(state, step) else { continue };
                prop_assert_eq!(no, 0);
                match next {
                    ApprovalState::Approved => yes += 1,
                    ApprovalState::Denied | ApprovalState::Expired | ApprovalState::Withdrawn => no += 1,
                    ApprovalState::Applied => {
                        prop_assert_eq!(state, ApprovalState::Approved);
                        applied += 1;
                    }
                    ApprovalState::Failed => {}
                    ApprovalState::Pending | ApprovalState::AutoApproved => prop_assert!(false, "nothing leads back"),
                }
                state = next;
            }
            prop_assert!(applied <= 1 && applied <= yes && yes + no <= 1);
        }
    }
}
