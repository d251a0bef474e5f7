//! Rules that stand: written into the operator's file by whoever says "allow from now on".

use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::audit::Pending;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::policy::standing::{ProposedRule, StandingRules};
use countersign_gateway::session::Caller;

/// The operator's configuration file.
pub(crate) struct OperatorsFile;

fn not_yet() -> Refusal {
    Refusal::new(
        ErrorCode::ConfigurationError,
        "write the rule into `approval_policy.whitelist` of the configuration",
    )
}

impl StandingRules for OperatorsFile {
    fn propose(&self, _question: &ApprovalRequest) -> Result<ProposedRule, Refusal> {
        Err(not_yet())
    }

    fn adopt(&self, _rule: ProposedRule, _by: &Caller) -> Pending<Result<(), Refusal>> {
        Box::pin(std::future::ready(Err(not_yet())))
    }
}
