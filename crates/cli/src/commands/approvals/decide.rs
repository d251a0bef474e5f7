//! `approve` and `deny`.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use countersign_gateway::approval::ballot::Choice;
use countersign_gateway::approval::board::{DecideError, Decided};
use countersign_gateway::approval::question::{AnswerError, Given, Offer};
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::audit::event::ApprovalState;
use countersign_gateway::policy::standing::{ProposedRule, StandingRules as _};
use serde_json::json;

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
    let form = Form::of(approve.json);
    if approve.always {
        let consent = if approve.yes { Consent::Given } else { Consent::Asked };
        return always(flags, &approve.id, reason, consent, form);
    }
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
    decide(flags, &approve.id, said, form)
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
        let decided = office.board.decide(&approval.id, ballot).await;
        decided.map_err(|error| match error {
            DecideError::Answer(error) => unanswered(&approval, error).into(),
            error @ (DecideError::Unknown(_)
            | DecideError::OwnRequest
            | DecideError::AnothersRequest
            | DecideError::OwnersOnly
            | DecideError::Record(_)) => anyhow::Error::from(error),
        })
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

/// What was typed does not fit what is asked.
fn unanswered(approval: &ApprovalRequest, error: AnswerError) -> BadUsage {
    let own = match Offer::of(approval) {
        Some(offer) if offer.allows_custom() => ", or by `--custom` in words of your own",
        Some(_) | None => "",
    };
    BadUsage(match error {
        AnswerError::Missing(ref options) => format!(
            "this is a question; answer it by `--option` with one of {}{own}",
            options.join(", ")
        ),
        AnswerError::NotOffered { .. }
        | AnswerError::NoCustom(_)
        | AnswerError::Length
        | AnswerError::NoQuestion
        | AnswerError::Denied => error.to_string(),
    })
}

/// Whether the person has agreed to the rule already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Consent {
    Given,
    Asked,
}

/// Approves, and lets the same command go unasked from now on. Nothing is decided unless there can be a rule
/// and the person agrees to it.
fn always(flags: &Flags, id: &str, reason: &str, consent: Consent, form: Form) -> anyhow::Result<ExitCode> {
    let office = Office::open(flags)?;
    let runtime = start::runtime()?;
    let approval = runtime.block_on(office.board.named(id))?;
    let rule = office.rules.propose(&approval).map_err(|refusal| {
        anyhow::anyhow!(
            "{}; `countersign approve {}` approves it this once",
            refusal.message,
            short(&approval)
        )
    })?;
    if consent == Consent::Asked && !agrees(&approval, &rule)? {
        start::say("nothing was decided");
        return Ok(ExitCode::from(FAILED));
    }
    let decided = runtime.block_on(
        office
            .board
            .decide(&approval.id, office.ballot(Choice::Allow, reason, None)),
    )?;
    if decided.approval().decision() != Some(Choice::Allow) {
        start::say(&format!("countersign: {}, so no rule was written", sentence(&decided)));
        return Ok(ExitCode::from(FAILED));
    }
    let adopted = runtime.block_on(office.adopt(rule.clone()));
    let mut page = Page::stdout();
    match form {
        Form::Json => {
            let mut shown = decided.approval().to_json();
            shown["rule"] = match &adopted {
                Ok(()) => json!({"pattern": rule.pattern, "reason": rule.reason, "file": rule.file}),
                Err(_) => json!(null),
            };
            page.json(&shown)?;
        }
        Form::Text => {
            page.line(sentence(&decided))?;
            if adopted.is_ok() {
                page.line(format_args!(
                    "from now on it runs unasked: rule `{}` in {}",
                    clean(&rule.pattern),
                    rule.file
                ))?;
            }
        }
    }
    page.flush()?;
    adopted.map_err(|refusal| anyhow::anyhow!("it was approved, but no rule was written: {}", refusal.message))?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the rule and asks.
fn agrees(approval: &ApprovalRequest, rule: &ProposedRule) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        let message = "`--always` shows the rule and asks; where there is no terminal, `--yes` answers".to_owned();
        return Err(BadUsage(message).into());
    }
    start::say(&format!(
        "approves `{}` and writes into {}:\n\n{}",
        clean(&shortened(act(approval), COMMAND_CHARS_MAX)),
        rule.file,
        rule.yaml
            .lines()
            .map(|line| format!("    {}\n", clean(line)))
            .collect::<String>()
    ));
    let mut stderr = std::io::stderr();
    stderr.write_all(b"agreed? [y/N] ").and_then(|()| stderr.flush())?;
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .context("cannot read the answer")?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
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
