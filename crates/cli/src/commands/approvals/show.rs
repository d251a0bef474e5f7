//! `approvals show`: everything a person needs to decide, and what was decided.

use countersign_gateway::approval::ballot::Choice;
use countersign_gateway::approval::question::{Answered, OPTIONS, Offer};
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::clock::{Clock, Timestamp};
use serde_json::Value;

use super::{Office, act, age, detail, tone};
use crate::commands::audit::Form;
use crate::config::Flags;
use crate::start;
use crate::terminal::{Fact, Page, Tone};

pub(super) fn run(flags: &Flags, id: &str, form: Form) -> anyhow::Result<()> {
    let office = Office::look(flags)?;
    let approval = start::runtime()?.block_on(async {
        office.board.expire_due().await?;
        Ok::<_, anyhow::Error>(office.board.named(id).await?)
    })?;
    let mut page = Page::stdout();
    match form {
        Form::Json => page.json(&approval.to_json())?,
        Form::Text => {
            let mut facts = facts(&approval, Clock::system().now());
            facts.extend(ids(&approval));
            page.facts(&facts)?;
        }
    }
    page.flush()
}

/// As many as a question has options.
const OPTION_NAMES: [&str; *OPTIONS.end()] = ["option 1", "option 2", "option 3", "option 4", "option 5"];

/// What has a place of its own among the facts, or says nothing beyond another.
const PLACED: [&str; 19] = [
    "command",
    "question",
    "options",
    "allow_custom",
    "programs",
    "how",
    "cwd",
    "rule",
    "source",
    "reason",
    "rule_reason",
    "justification",
    "sandbox",
    "network",
    "timeout_ms",
    "env",
    "input_bytes",
    "risks",
    "fileChanges",
];

/// Everything that whoever decides must know: first what would happen and what is worth a second look, then what
/// else was said. Nothing is left out, and nothing is cut.
pub(super) fn facts(approval: &ApprovalRequest, now: Timestamp) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut put = |name: &'static str, tone: Tone, text: &str| {
        if !text.is_empty() {
            facts.push(Fact::new(name, tone, text));
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
            for (name, option) in OPTION_NAMES.iter().zip(offer.options()) {
                put(name, Tone::Plain, option);
            }
            if offer.allows_custom() {
                put("option", Tone::Quiet, "or words of your own, with --custom");
            }
        }
        None => put("runs", Tone::Strong, act(approval)),
    }
    for risk in list(approval, "risks") {
        put("note", Tone::Caution, risk);
    }
    put("programs", Tone::Plain, &words(approval, "programs"));
    put("in", Tone::Plain, detail(approval, "cwd"));
    let rule = format!("{} ({})", detail(approval, "rule"), detail(approval, "source"));
    put(
        "rule",
        Tone::Plain,
        if detail(approval, "rule").is_empty() { "" } else { &rule },
    );
    put("because", Tone::Plain, approval.because().unwrap_or_default());
    put("agent says", Tone::Plain, approval.agents_words().unwrap_or_default());
    put("sandbox", Tone::Plain, detail(approval, "sandbox"));
    put("network", Tone::Plain, detail(approval, "network"));
    put("time limit", Tone::Plain, &millis(approval.details.get("timeout_ms")));
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
        let said = [word, &vote.reason].into_iter().filter(|part| !part.is_empty());
        let said = said.collect::<Vec<_>>().join(", ");
        put("voted", tone, &format!("{}: {said} ({})", vote.by, vote.at));
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
    if let Some(Value::Object(env)) = approval.details.get("env") {
        for (name, value) in env {
            put("variable", Tone::Plain, &format!("{name}={}", spoken(value)));
        }
    }
    for change in approval
        .details
        .get("fileChanges")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let text = |name: &str| change[name].as_str().unwrap_or_default();
        put("changes", Tone::Strong, &format!("{} ({})", text("path"), text("type")));
        for line in text("contentPreview").lines() {
            put("", Tone::Plain, line);
        }
    }
    for (name, value) in approval
        .details
        .iter()
        .filter(|(name, _)| !PLACED.contains(&name.as_str()))
    {
        match (name.as_str(), value) {
            (_, Value::Null) => {}
            ("input", input) => put("input", Tone::Plain, &spoken(input)),
            (name, value) => put("also", Tone::Plain, &format!("{name}: {}", spoken(value))),
        }
    }
    facts
}

/// What it is known by; nothing to decide by.
fn ids(approval: &ApprovalRequest) -> Vec<Fact> {
    let command = approval.command.as_ref().map(|command| command.request_id.as_str());
    let ids = [
        ("request", command),
        ("correlation", Some(approval.correlation_id.as_str())),
        ("arguments", Some(approval.arguments_digest.as_str())),
        ("policy", Some(approval.policy_digest.as_str())),
    ];
    let known = ids.into_iter().filter_map(|(name, id)| Some((name, id?)));
    known
        .filter(|(_, id)| !id.is_empty())
        .map(|(name, id)| Fact::new(name, Tone::Quiet, id))
        .collect()
}

/// A text as it is, anything else as JSON.
fn spoken(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
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
