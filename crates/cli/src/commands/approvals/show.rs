//! `approvals show`: everything a person needs to decide, and what was decided.

use countersign_gateway::approval::ballot::Choice;
use countersign_gateway::approval::question::{Answered, Offer};
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::clock::{Clock, Timestamp};
use serde_json::Value;

use super::{Office, act, age, detail, tone};
use crate::commands::audit::Form;
use crate::config::Flags;
use crate::start;
use crate::terminal::{Cell, Page, Tone};

pub(super) fn run(flags: &Flags, id: &str, form: Form) -> anyhow::Result<()> {
    let office = Office::look(flags)?;
    let approval = start::runtime()?.block_on(async {
        office.board.expire_due().await?;
        Ok::<_, anyhow::Error>(office.board.named(id).await?)
    })?;
    let mut page = Page::stdout();
    match form {
        Form::Json => page.json(&approval.to_json())?,
        Form::Text => page.table(&rows(&approval, Clock::system().now()))?,
    }
    page.flush()
}

/// One line for each thing worth knowing.
pub(super) fn rows(approval: &ApprovalRequest, now: Timestamp) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    let mut put = |name: &str, tone: Tone, text: &str| {
        if !text.is_empty() {
            rows.push(vec![Cell::new(Tone::Quiet, name), Cell::new(tone, text)]);
        }
    };
    put("approval", Tone::Strong, approval.id.as_str());
    put("state", tone(approval.state()), approval.state().as_str());
    let asked = format!("{} ({} ago)", approval.created_at, age(approval.created_at, now));
    put("asked", Tone::Plain, &asked);
    put(
        "by",
        Tone::Plain,
        &format!("{} with {}", approval.requested_by, approval.tool),
    );
    match Offer::of(approval) {
        Some(offer) => {
            put("asks", Tone::Strong, offer.question());
            for option in offer.options() {
                put("option", Tone::Plain, option);
            }
            if offer.allows_custom() {
                put("option", Tone::Quiet, "or words of your own, with --custom");
            }
        }
        None => put("runs", Tone::Strong, act(approval)),
    }
    put("programs", Tone::Plain, &words(approval, "programs"));
    put("in", Tone::Plain, detail(approval, "cwd"));
    let rule = format!("{} ({})", detail(approval, "rule"), detail(approval, "source"));
    put(
        "rule",
        Tone::Plain,
        if detail(approval, "rule").is_empty() { "" } else { &rule },
    );
    put("because", Tone::Plain, detail(approval, "reason"));
    put("agent says", Tone::Plain, detail(approval, "justification"));
    put("sandbox", Tone::Plain, detail(approval, "sandbox"));
    put("network", Tone::Plain, detail(approval, "network"));
    put("time limit", Tone::Plain, &millis(approval.details.get("timeout_ms")));
    if let Some(Value::Object(env)) = approval.details.get("env") {
        for (name, value) in env {
            put(
                "variable",
                Tone::Plain,
                &format!("{name}={}", value.as_str().unwrap_or_default()),
            );
        }
    }
    put("input", Tone::Plain, detail(approval, "input"));
    for risk in list(approval, "risks") {
        put("note", Tone::Caution, risk);
    }
    if let (true, Some(at)) = (approval.is_pending(), approval.expires_at) {
        put("expires", Tone::Caution, &at.to_string());
    }
    if approval.quorum > 1 {
        put("needs", Tone::Plain, &format!("{} people to agree", approval.quorum));
    }
    for vote in &approval.votes {
        let (tone, word) = match vote.choice {
            Choice::Allow => (Tone::Good, "yes"),
            Choice::Deny => (Tone::Bad, "no"),
        };
        put(
            "voted",
            tone,
            &format!("{}: {word}, {} ({})", vote.by, vote.reason, vote.at),
        );
    }
    match approval.answer() {
        Some(Answered::Option { text, .. } | Answered::Custom(text)) => put("answer", Tone::Good, text),
        None => {}
    }
    let decided = approval.decided_by.as_deref().zip(approval.resolved_at);
    if let Some((by, at)) = decided {
        put("decided", tone(approval.state()), &format!("by {by} at {at}"));
        put(
            "reason",
            Tone::Plain,
            approval.decision_reason.as_deref().unwrap_or_default(),
        );
    }
    let command = approval
        .command
        .as_ref()
        .map_or("", |command| command.request_id.as_str());
    put("request", Tone::Quiet, command);
    put("correlation", Tone::Quiet, approval.correlation_id.as_str());
    put("arguments", Tone::Quiet, &approval.arguments_digest);
    put("policy", Tone::Quiet, &approval.policy_digest);
    rows
}

fn list<'a>(approval: &'a ApprovalRequest, name: &str) -> Vec<&'a str> {
    let entries = approval.details.get(name).and_then(Value::as_array);
    entries.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn words(approval: &ApprovalRequest, name: &str) -> String {
    list(approval, name).join(", ")
}

fn millis(value: Option<&Value>) -> String {
    value.and_then(Value::as_u64).map_or_else(String::new, |millis| {
        format!("{} s, which stands still until you decide", millis as f64 / 1_000.0)
    })
}
