//! "Allow from now on": a whitelist rule made of one question, shown to a person before it is written.

use crate::approval::request::ApprovalRequest;
use crate::audit::Pending;
use crate::error::Refusal;
use crate::session::Caller;

/// A rule that would have answered the question, and nothing that it need not cover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProposedRule {
    /// As in `approval_policy.whitelist`.
    pub pattern: String,
    pub reason: String,
    /// The lines as they would stand in the file.
    pub yaml: String,
    /// The file that it would be written to.
    pub file: String,
}

/// Port: the operator's configuration, where rules that stand are kept.
pub trait StandingRules: Send + Sync + 'static {
    /// What rule would let the same act go next time. Refused where none can: a line that needs a shell,
    /// a call with variables, more than policy gives.
    fn propose(&self, question: &ApprovalRequest) -> Result<ProposedRule, Refusal>;

    /// Writes the rule and puts it in force here, with an event in the record.
    fn adopt(&self, rule: ProposedRule, by: &Caller) -> Pending<Result<(), Refusal>>;
}
