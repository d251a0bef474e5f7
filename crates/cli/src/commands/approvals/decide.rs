//! `approve` and `deny`.

use std::process::ExitCode;

use countersign_gateway::approval::board::Decided;
use countersign_gateway::approval::question::Given;
use countersign_gateway::approval::request::{ApprovalRequest, Choice};
use countersign_gateway::audit::event::ApprovalState;

use super::{Office, act, short};
use crate::cli::{Approve, Deny};
use crate::commands::audit::Form;
use crate::config::Flags;
use crate::start::{self, BadUsage};
use crate::terminal::{Page, clean, shortened};

const FAILED: u8 = 1;
const COMMAND_CHARS_MAX: usize = 80;

pub(crate) fn approve(flags: &Flags, approve: &Approve) -> anyhow::Result<ExitCode> {
    let reason = approve.reason.as_deref().unwrap_or("approved on the terminal");
    let answer = match (&approve.option, &approve.custom) {
        (Some(option), _) => Some(Given::Option(option.clone())),
        (None, Some(custom)) => Some(Given::Custom(custom.clone())),
        (None, None) => None,
    };
    let said = Said {
        choice: Choice::Allow,
        reason,
        answer,
    };
    decide(flags, &approve.id, said, Form::of(approve.json))
}

pub(crate) fn deny(flags: &Flags, deny: &Deny) -> anyhow::Result<ExitCode> {
    if deny.reason.trim().is_empty() {
        return Err(BadUsage("`--reason` must say something; the agent is told".to_owned()).into());
    }
    let said = Said {
        choice: Choice::Deny,
        reason: &deny.reason,
        answer: None,
    };
    decide(flags, &deny.id, said, Form::of(deny.json))
}

/// What somebody said on the command line.
struct Said<'a> {
    choice: Choice,
    reason: &'a str,
    answer: Option<Given>,
}

/// The exit code is 0 when the question now stands decided as asked, and 1 when somebody had decided
/// otherwise.
fn decide(flags: &Flags, id: &str, said: Said<'_>, form: Form) -> anyhow::Result<ExitCode> {
    let choice = said.choice;
    let office = Office::open(flags)?;
    let decided = start::runtime()?.block_on(async {
        let approval = office.board.named(id).await?;
        let ballot = office.ballot(choice, said.reason, said.answer);
        Ok::<_, anyhow::Error>(office.board.decide(&approval.id, ballot).await?)
    })?;
    let mut page = Page::stdout();
    match form {
        Form::Json => page.json(&decided.approval().to_json())?,
        Form::Text => page.line(sentence(&decided))?,
    }
    page.flush()?;
    let stands = match &decided {
        Decided::Now(_) | Decided::Counted(_) => true,
        Decided::Before(approval) => approval.decision() == Some(choice),
    };
    Ok(ExitCode::from(if stands { 0 } else { FAILED }))
}

/// What came of it, in a sentence.
pub(super) fn sentence(decided: &Decided) -> String {
    let approval = decided.approval();
    let act = clean(&shortened(act(approval), COMMAND_CHARS_MAX));
    match decided {
        Decided::Now(_) => format!("{} `{act}` ({})", past(approval), short(approval)),
        Decided::Counted(_) => format!(
            "counted for `{act}` ({}): {} of {} people agree so far",
            short(approval),
            approval.votes.len(),
            approval.quorum
        ),
        Decided::Before(_) => {
            let by = approval.decided_by.as_deref().unwrap_or("nobody");
            let why = approval.decision_reason.as_deref().unwrap_or("no reason was given");
            format!(
                "`{act}` ({}) was {} before, by {}: {}; that stands",
                short(approval),
                past(approval),
                clean(by),
                clean(why)
            )
        }
    }
}

fn past(approval: &ApprovalRequest) -> &'static str {
    match approval.state() {
        ApprovalState::Pending => "asked",
        ApprovalState::Approved | ApprovalState::AutoApproved | ApprovalState::Applied | ApprovalState::Failed => {
            "approved"
        }
        ApprovalState::Denied => "denied",
        ApprovalState::Expired => "expired",
        ApprovalState::Withdrawn => "withdrawn",
    }
}
