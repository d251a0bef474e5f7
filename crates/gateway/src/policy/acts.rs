//! Decides acts that are no commands: what the tool's layers say, and whether the act asks for more than
//! policy gives. The strictest wins, as everywhere; absence denies.

use super::actor::Context;
use super::agents::Judgement;
use super::decide::{Denial, Rule};
use super::effective::{EffectivePolicy, Mode};
use super::tools::{Ruling, ToolUse};
use crate::error::{ErrorCode, Refusal};

/// Policy's answer to an act.
#[must_use]
#[derive(Debug)]
pub enum ActVerdict {
    Allow(ActPermit),
    Ask(ActQuestion),
    Deny(Denial),
}

/// May be done.
#[derive(Debug)]
pub struct ActPermit {
    // INVARIANT: policy allows it as it stands; only this module makes one.
    rule: Rule,
}

/// May be done if a person says so.
#[derive(Debug)]
pub struct ActQuestion {
    // INVARIANT: only this module makes one.
    rule: Rule,
}

impl ActPermit {
    /// What is nothing but a question is asked, also where policy would let it pass.
    pub(crate) fn into_question(self) -> ActQuestion {
        ActQuestion { rule: self.rule }
    }

    pub fn rule(&self) -> &Rule {
        &self.rule
    }
}

impl ActQuestion {
    pub fn rule(&self) -> &Rule {
        &self.rule
    }
}

impl ActVerdict {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Allow(_) => "allow",
            Self::Ask(_) => "ask",
            Self::Deny(_) => "deny",
        }
    }

    pub fn rule(&self) -> &Rule {
        match self {
            Self::Allow(permit) => &permit.rule,
            Self::Ask(question) => &question.rule,
            Self::Deny(denial) => &denial.rule,
        }
    }
}

/// Decides one act. `wants_more` says what it asks beyond what policy gives.
pub fn decide(
    policy: &EffectivePolicy,
    context: &Context<'_>,
    used: &ToolUse<'_>,
    wants_more: Option<&str>,
) -> ActVerdict {
    let deny = |code, rule: Rule| {
        ActVerdict::Deny(Denial {
            refusal: Refusal::new(code, rule.reason.clone()),
            rule,
        })
    };
    let of_mode = |name: &str, reason: String| Rule {
        name: name.to_owned(),
        source: policy.rule_sources.mode.clone(),
        reason,
    };
    match (policy.tools.ruling(context, used), wants_more, policy.approval.mode) {
        (Ruling::Absent(rule), _, _) => deny(ErrorCode::UnknownTool, rule),
        (Ruling::Deny(rule), _, _) => deny(ErrorCode::PolicyDenied, rule),
        (Ruling::Allow | Ruling::Ask(_), Some(more), Mode::Never) => {
            let reason = format!("this asks for {more}, which policy does not give, and nobody is ever asked here");
            deny(ErrorCode::PolicyDenied, of_mode("mode never", reason))
        }
        (Ruling::Ask(rule), _, _) => ActVerdict::Ask(ActQuestion { rule }),
        (Ruling::Allow, Some(more), Mode::Untrusted | Mode::OnRequest | Mode::OnFailure) => {
            ActVerdict::Ask(ActQuestion {
                rule: of_mode("request for more", format!("asks for {more}")),
            })
        }
        (Ruling::Allow, None, _) => ActVerdict::Allow(ActPermit {
            rule: Rule {
                name: "tool matrix".to_owned(),
                source: super::matrix::SOURCE.to_owned(),
                reason: format!("nothing asks about the tool `{}`", used.tool),
            },
        }),
    }
}

/// Decides for a tool that answers for what others want to do: the stricter counts of what is said of the tool
/// and of the deed.
pub fn judged(verdict: ActVerdict, deed: Option<&Judgement>) -> ActVerdict {
    match (verdict, deed) {
        (verdict, None) => verdict,
        (ActVerdict::Deny(denial), Some(_)) => ActVerdict::Deny(denial),
        (ActVerdict::Allow(_) | ActVerdict::Ask(_), Some(Judgement::Deny(rule))) => ActVerdict::Deny(Denial {
            refusal: Refusal::new(ErrorCode::PolicyDenied, rule.reason.clone()),
            rule: rule.clone(),
        }),
        (ActVerdict::Ask(question), Some(Judgement::Ask(_) | Judgement::Allow(_))) => ActVerdict::Ask(question),
        (ActVerdict::Allow(_), Some(Judgement::Ask(rule))) => ActVerdict::Ask(ActQuestion { rule: rule.clone() }),
        (ActVerdict::Allow(_), Some(Judgement::Allow(rule))) => ActVerdict::Allow(ActPermit { rule: rule.clone() }),
    }
}
