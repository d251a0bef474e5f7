//! Approval: a verdict becomes a cleared plan, or does not.
//!
//! [`Cleared`] is the only thing execution accepts, and [`settle`] the only place that makes one, from
//! a verdict of policy. Who is asked is a port: a terminal, a console, nobody.

use crate::audit::Pending;
use crate::error::{ErrorCode, Refusal};
use crate::policy::decide::{Permit, Question, Verdict};
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

/// What a settled verdict came to, and who decided when a person did.
#[derive(Debug)]
pub enum Settled {
    Cleared { cleared: Box<Cleared>, decision: Option<Decision> },
    Refused { refusal: Refusal, decision: Option<Decision> },
}

/// Allow runs, deny does not, ask depends on the answer.
pub async fn settle(verdict: Verdict, approver: &dyn Approver) -> Settled {
    let question = match verdict {
        Verdict::Allow(Permit { plan, .. }) => {
            return Settled::Cleared { cleared: Box::new(Cleared { plan: *plan }), decision: None };
        }
        Verdict::Deny(denial) => return Settled::Refused { refusal: denial.refusal, decision: None },
        Verdict::Ask(question) => question,
    };
    let decision = approver.ask(&question).await;
    match &decision {
        Decision::Approved { .. } => {
            Settled::Cleared { cleared: Box::new(Cleared { plan: *question.into_plan() }), decision: Some(decision) }
        }
        Decision::Denied { reason, .. } => {
            let refusal = Refusal::new(ErrorCode::ApprovalDenied, reason.clone()).with("rule", question.rule.name.clone());
            Settled::Refused { refusal, decision: Some(decision) }
        }
    }
}

/// For a server that has no way to ask yet: every question is answered no.
pub struct NobodyToAsk;

impl Approver for NobodyToAsk {
    fn ask(&self, question: &Question) -> Pending<Decision> {
        let reason = format!("this needs a person's approval ({}), and nobody can be asked yet", question.rule.reason);
        Box::pin(async move { Decision::Denied { by: "nobody".to_owned(), reason } })
    }
}
