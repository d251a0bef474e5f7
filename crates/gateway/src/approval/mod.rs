//! Approval: a verdict becomes a cleared plan, or does not.
//!
//! [`Cleared`] is the only thing execution accepts. [`allow`] makes one from a permit of policy, [`clear`]
//! from a question that a person answered with yes, for exactly this act, as the record proves ([`proof`]); there is no
//! other way. Questions lie on the [`board`], where whoever may decide finds them; a store keeps them ([`Approvals`]), and
//! processes that share one wake each other ([`Bell`]).

pub mod ballot;
pub mod binding;
pub mod board;
pub mod callback;
pub mod client;
pub mod details;
pub mod journal;
pub mod lifecycle;
pub mod proof;
pub mod question;
pub mod request;
pub mod unseen;
pub(crate) mod withheld;

use crate::audit::act::{ActJournal, UsedApproval};
use crate::audit::event::ApprovalState;
use crate::audit::{Pending, RecordError};
use crate::clock::Timestamp;
use crate::ids::{ApprovalId, CorrelationId, CredentialId, RequestId};
use crate::policy::acts::{ActPermit, ActQuestion};
use crate::policy::decide::{Permit, Question};
use crate::policy::plan::Plan;
use crate::session::{Admitted, Caller};
use ballot::{Ballot, Choice, Decider};
use binding::Binding;
use proof::{ProvedYes, Told};
use question::Answered;
use request::ApprovalRequest;

/// Port: somebody whom this process asks by itself. Everybody else finds the question on the board.
pub trait Approver: Send + Sync + 'static {
    /// Shows a question. None where the answer comes another way, or never; dropped once somebody else
    /// has decided.
    fn ask(&self, question: &ApprovalRequest) -> Pending<Option<Ballot>>;
}

/// Port: approvals as a store keeps them. They change through the record only, with their events.
pub trait Approvals: Send + Sync + 'static {
    fn find(&self, id: &ApprovalId) -> Pending<Result<Option<ApprovalRequest>, RecordError>>;

    /// Those whose id begins like this, oldest first.
    fn beginning_with(&self, prefix: &str, limit: usize) -> Pending<Result<Vec<ApprovalRequest>, RecordError>>;

    /// The newest question under a binding whose command waits to begin.
    fn held(&self, owner: &CredentialId, binding: &str) -> Pending<Result<Option<ApprovalRequest>, RecordError>>;

    /// The newest question under a binding that is about no command, whatever became of it.
    fn bound(&self, owner: &CredentialId, binding: &str) -> Pending<Result<Option<ApprovalRequest>, RecordError>>;

    /// The newest question about a command.
    fn of_command(
        &self,
        owner: &CredentialId,
        request_id: &RequestId,
    ) -> Pending<Result<Option<ApprovalRequest>, RecordError>>;

    /// All questions of one call, oldest first: an act that asks to run once more has two.
    fn of_correlation(&self, id: &CorrelationId) -> Pending<Result<Vec<ApprovalRequest>, RecordError>>;

    /// The latest ones that are asked for; the newest last.
    fn list(&self, filter: ApprovalFilter) -> Pending<Result<Vec<ApprovalRequest>, RecordError>>;

    /// How many questions of a credential are open.
    fn open_of(&self, owner: &CredentialId) -> Pending<Result<usize, RecordError>>;

    /// The events that tell what became of a question and name it, oldest first, as far as the record proves that they are
    /// what was written.
    fn told_of(&self, question: &ApprovalRequest) -> Pending<Result<Vec<Told>, RecordError>>;

    /// Those whose time to be answered is over.
    fn due(&self, now: Timestamp, limit: usize) -> Pending<Result<Vec<ApprovalRequest>, RecordError>>;
}

/// Which approvals are wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApprovalFilter {
    /// In any of these states; empty for all.
    pub states: Vec<ApprovalState>,
    /// Only what the whitelist answered, or only what it did not.
    pub automatic: Option<bool>,
    pub limit: usize,
}

impl ApprovalFilter {
    /// What waits for a decision.
    pub fn open() -> Self {
        Self {
            states: vec![ApprovalState::Pending],
            automatic: None,
            limit: crate::limits::APPROVALS_AT_ONCE,
        }
    }
}

/// Port: tells the other processes of a state directory that something was asked or decided. It may be
/// missed: nothing depends on it but how soon they know.
pub trait Bell: Send + Sync + 'static {
    fn ring(&self);

    /// Resolves when somebody rang.
    fn rung(&self) -> Pending<()>;
}

/// A bell for a process that has no others beside it.
pub struct Alone;

impl Bell for Alone {
    fn ring(&self) {}

    fn rung(&self) -> Pending<()> {
        Box::pin(std::future::pending())
    }
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

/// What policy permits needs nobody's answer.
pub fn allow(permit: Permit) -> Cleared {
    Cleared {
        plan: *permit.into_plan(),
    }
}

/// An approval that is not one for this act.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this approval is for another act, or is none")]
pub struct NotApproved;

/// Turns a question into a plan that may run, by an approval of this very act that the record proves.
pub fn clear(question: Question, binding: &Binding, given: &ProvedYes) -> Result<Cleared, NotApproved> {
    let approval = given.approval();
    if approval.state() != ApprovalState::Approved || approval.binding != binding.digest {
        return Err(NotApproved);
    }
    Ok(Cleared {
        plan: *question.into_plan(),
    })
}

/// Proof that an act which is no command may be done.
#[derive(Debug)]
pub struct ClearedAct {
    // INVARIANT: policy permitted it, or a person approved the question that policy asked, for exactly this
    // act; its opening is in the record where it is more than a look.
    caller: Caller,
    correlation_id: CorrelationId,
    approval: Option<UsedApproval>,
    answer: Option<Answered>,
    /// None for a look.
    journal: Option<ActJournal>,
}

impl ClearedAct {
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    pub fn correlation_id(&self) -> &CorrelationId {
        &self.correlation_id
    }

    /// What a person answered, where the act is a question.
    pub fn answer(&self) -> Option<&Answered> {
        self.answer.as_ref()
    }

    /// The approval by which it may be done, where one was needed.
    pub fn approval(&self) -> Option<&ApprovalId> {
        self.approval.as_ref().map(|used| &used.id)
    }

    pub(crate) fn used_approval(&self) -> Option<&UsedApproval> {
        self.approval.as_ref()
    }

    /// Leave to do an act whose opening is in the record.
    #[must_use]
    pub(crate) fn opened(self, journal: ActJournal) -> Self {
        Self {
            journal: Some(journal),
            ..self
        }
    }

    /// Where an act upon several systems tells how it went in each; none where it only looks.
    pub fn journal(&self) -> Option<&ActJournal> {
        self.journal.as_ref()
    }
}

/// What policy permits needs nobody's answer.
pub fn allow_act(_permit: ActPermit, admitted: &Admitted, correlation_id: CorrelationId) -> ClearedAct {
    ClearedAct {
        caller: admitted.caller().clone(),
        correlation_id,
        approval: None,
        answer: None,
        journal: None,
    }
}

/// Turns a question about an act into leave to do it, by an approval of this very act that the record proves.
pub fn clear_act(
    _question: ActQuestion,
    binding: &Binding,
    given: &ProvedYes,
    admitted: &Admitted,
) -> Result<ClearedAct, NotApproved> {
    let approval = given.approval();
    if approval.state() != ApprovalState::Approved || approval.binding != binding.digest {
        return Err(NotApproved);
    }
    Ok(ClearedAct {
        caller: admitted.caller().clone(),
        correlation_id: approval.correlation_id.clone(),
        answer: given.answer().cloned(),
        approval: Some(UsedApproval {
            id: approval.id.clone(),
            version: approval.version,
        }),
        journal: None,
    })
}

/// For a command line that nobody sits at: every question is answered no.
pub struct NobodyToAsk;

impl Approver for NobodyToAsk {
    fn ask(&self, question: &ApprovalRequest) -> Pending<Option<Ballot>> {
        let because = question.details.get("reason").and_then(|reason| reason.as_str());
        let reason = format!(
            "this needs a person's approval ({}), and there is no terminal to ask at; \
             run it at one, or see by `countersign policy explain` which rule asks",
            because.unwrap_or("policy asks")
        );
        let ballot = Ballot {
            choice: Choice::Deny,
            by: Decider::system("nobody"),
            reason,
            answer: None,
        };
        Box::pin(async move { Some(ballot) })
    }
}
