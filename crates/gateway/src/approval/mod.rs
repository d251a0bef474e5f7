//! Approval: a verdict becomes a cleared plan, or does not.
//!
//! [`Cleared`] is the only thing execution accepts. [`allow`] makes one from a permit of policy, [`settle`]
//! from a question that somebody answered with yes; there is no other way. Who is asked is a port: a terminal, a console, nobody.

pub mod lifecycle;
pub mod request;

use crate::audit::Pending;
use crate::error::{ErrorCode, Refusal};
use crate::policy::decide::{Permit, Question};
use crate::policy::plan::Plan;

/// Port: somebody who can be asked.
pub trait Approver: Send + Sync + 'static {
    fn ask(&self, question: &Question) -> Pending<Decision>;
}

/// What the somebody said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    Approved { by: String, reason: String },
    Denied { by: String, reason: String },
}

/// A plan that may run.
#[derive(Debug)]
pub struct Cleared {
    // INVARIANT: policy permitted it, or a person approved the question that policy asked.
    plan: Plan,
}

impl Cleared {
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub fn into_plan(self) -> Plan {
        self.plan
    }
}

/// What a question came to, and who decided.
#[derive(Debug)]
pub enum Settled {
    Cleared { cleared: Box<Cleared>, decision: Decision },
    Refused { refusal: Refusal, decision: Decision },
}

/// What policy permits needs nobody's answer.
pub fn allow(permit: Permit) -> Cleared {
    Cleared {
        plan: *permit.into_plan(),
    }
}

/// Asks; the answer decides.
pub async fn settle(question: Question, approver: &dyn Approver) -> Settled {
    let decision = approver.ask(&question).await;
    match &decision {
        Decision::Approved { .. } => Settled::Cleared {
            cleared: Box::new(Cleared {
                plan: *question.into_plan(),
            }),
            decision,
        },
        Decision::Denied { reason, .. } => {
            let refusal =
                Refusal::new(ErrorCode::ApprovalDenied, reason.clone()).with("rule", question.rule.name.clone());
            Settled::Refused { refusal, decision }
        }
    }
}

/// For a server that has no way to ask yet: every question is answered no.
pub struct NobodyToAsk;

impl Approver for NobodyToAsk {
    fn ask(&self, question: &Question) -> Pending<Decision> {
        let reason = format!(
            "this needs a person's approval ({}), and nobody can be asked yet",
            question.rule.reason
        );
        Box::pin(async move {
            Decision::Denied {
                by: "nobody".to_owned(),
                reason,
            }
        })
    }
}
