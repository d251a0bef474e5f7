//! One question as a person sees it: what would happen, where, who asks and why, and by which rule.
//!
//! Nothing of the details is left out: what has no place of its own is shown as it stands.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use askama::Template;
use countersign_gateway::approval::ballot::Choice;
use countersign_gateway::approval::question::Offer;
use countersign_gateway::approval::request::{ApprovalRequest, ApprovalType};
use countersign_gateway::audit::event::ApprovalState;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::policy::standing;
use serde_json::{Map, Value};

use super::access::Reader;
use super::patch::{self, Change};
use super::text::{self, Html};
use super::time::{self, Moment};
use crate::limits::TEXT_CHARS_SHOWN;

#[derive(Template)]
#[template(path = "card.html")]
pub(super) struct Card {
    pub(super) id: String,
    pub(super) version: u64,
    kind: &'static str,
    tool: String,
    command: Option<Html>,
    is_odd: bool,
    programs: Vec<Html>,
    requested_by: Html,
    origin: Option<Html>,
    cwd: Option<Html>,
    justification: Option<Html>,
    because: Option<Html>,
    rule: Option<Html>,
    source: Option<Html>,
    facts: Vec<(&'static str, Html)>,
    risks: Vec<Html>,
    input: Option<Html>,
    env: Vec<(Html, Html)>,
    changes: Vec<Change>,
    question: Option<Question>,
    other: Vec<(Html, Html)>,
    asked: Moment,
    expires: Option<Moment>,
    quorum: Option<Quorum>,
    votes: Vec<Voice>,
    story: String,
    standing: Standing,
}

/// What whoever looks may do about it.
enum Standing {
    Decide {
        may_rule: bool,
    },
    /// It is their own request, which a person of this machine may decide at the terminal.
    Own {
        at_terminal: bool,
    },
    /// They have said yes; others must too.
    Agreed,
    /// They may look only.
    Look,
    Settled(Settled),
}

pub(super) struct Settled {
    word: &'static str,
    tone: &'static str,
    by: Option<Html>,
    reason: Option<Html>,
    at: Option<Moment>,
}

struct Quorum {
    agreed: usize,
    needed: u32,
}

struct Voice {
    by: Html,
    word: &'static str,
    reason: Html,
}

struct Question {
    text: Html,
    options: Vec<(String, Html)>,
    takes_custom: bool,
}

impl Card {
    /// `origin` is the client that it came from, where that is known.
    pub(super) fn of(approval: &ApprovalRequest, origin: Option<&str>, reader: &Reader, now: Timestamp) -> Self {
        let mut details = Details(approval.details.clone());
        let mut programs = details.list("programs");
        let mut seen = HashSet::new();
        programs.retain(|program| seen.insert(program.clone()));
        let line = details.text("command");
        let is_odd = line.as_deref().is_some_and(text::is_odd);
        let command = line.map(|line| text::command(&line, &programs, TEXT_CHARS_SHOWN));
        let facts = facts(&mut details);
        for told in ["justification", "reason", "rule_reason"] {
            details.text(told);
        }
        let mut card = Self {
            id: approval.id.to_string(),
            version: approval.version,
            kind: kind(approval.kind),
            tool: approval.tool.clone(),
            command,
            is_odd,
            programs: programs.iter().map(|name| shown(name)).collect(),
            requested_by: shown(&approval.requested_by),
            origin: origin.map(shown),
            cwd: details.html("cwd"),
            justification: approval.agents_words().map(shown),
            because: approval.because().map(shown),
            rule: details.html("rule"),
            source: details.html("source"),
            facts,
            risks: details.list("risks").iter().map(|risk| shown(risk)).collect(),
            input: details.html("input"),
            env: details.pairs("env"),
            changes: patch::changes(details.0.shift_remove("fileChanges")),
            question: question(approval, &mut details),
            other: Vec::new(),
            asked: Moment::of(approval.created_at, now),
            expires: approval.expires_at.map(|at| Moment::of(at, now)),
            quorum: quorum(approval),
            votes: approval.votes.iter().map(voice).collect(),
            story: format!("/calls/{}", approval.correlation_id),
            standing: standing(approval, reader, now),
        };
        card.other = details.rest();
        card
    }

    /// The command of a question, or what else it is about.
    pub(super) fn line(approval: &ApprovalRequest) -> Html {
        let mut details = Details(approval.details.clone());
        let programs = details.list("programs");
        let line = details.text("command").unwrap_or_else(|| approval.tool.clone());
        text::command(&line, &programs, TEXT_CHARS_SHOWN)
    }

    /// Whether anything stands above the buttons that needs a second look.
    fn has_warnings(&self) -> bool {
        !self.risks.is_empty() || self.is_odd
    }
}

fn shown(text: &str) -> Html {
    text::shown(text, TEXT_CHARS_SHOWN)
}

fn kind(kind: ApprovalType) -> &'static str {
    match kind {
        ApprovalType::ExecCommand => "Command",
        ApprovalType::ApplyPatch => "Patch",
        ApprovalType::ToolCall => "Tool call",
        ApprovalType::Question => "Question",
    }
}

fn question(approval: &ApprovalRequest, details: &mut Details) -> Option<Question> {
    let offer = Offer::of(approval)?;
    for name in ["question", "options", "allow_custom"] {
        details.0.shift_remove(name);
    }
    let options = offer.options().iter().map(|option| (option.clone(), shown(option)));
    Some(Question {
        text: shown(offer.question()),
        options: options.collect(),
        takes_custom: offer.allows_custom(),
    })
}

fn facts(details: &mut Details) -> Vec<(&'static str, Html)> {
    let how = details.text("how").map(|how| match how.as_str() {
        "process" => "one program, no shell".to_owned(),
        "line" => "a plain line, no shell".to_owned(),
        "shell" => "a shell".to_owned(),
        _ => how,
    });
    let timeout = details
        .0
        .shift_remove("timeout_ms")
        .and_then(|value| value.as_u64())
        .map(time::spoken_millis);
    let bytes = details.0.shift_remove("input_bytes").and_then(|value| value.as_u64());
    let facts = [
        ("Run by", how),
        ("Sandbox", details.text("sandbox")),
        ("Network", details.text("network")),
        ("Time limit", timeout),
        ("Input", bytes.map(|bytes| format!("{bytes} bytes"))),
    ];
    facts
        .into_iter()
        .filter_map(|(name, value)| Some((name, shown(&value?))))
        .collect()
}

fn quorum(approval: &ApprovalRequest) -> Option<Quorum> {
    let agreed = approval
        .votes
        .iter()
        .filter(|vote| vote.choice == Choice::Allow)
        .count();
    (approval.quorum > 1).then_some(Quorum {
        agreed,
        needed: approval.quorum,
    })
}

fn voice(vote: &countersign_gateway::approval::ballot::Vote) -> Voice {
    Voice {
        by: shown(&vote.by),
        word: match vote.choice {
            Choice::Allow => "approves",
            Choice::Deny => "denies",
        },
        reason: shown(&vote.reason),
    }
}

fn standing(approval: &ApprovalRequest, reader: &Reader, now: Timestamp) -> Standing {
    if let Some(settled) = settled(approval, now) {
        return Standing::Settled(settled);
    }
    if !reader.may_decide() {
        return Standing::Look;
    }
    if approval.owner == reader.0.credential {
        return Standing::Own {
            at_terminal: approval.owner.is_user(),
        };
    }
    if approval.has_voted(&reader.0.credential, &reader.0.actor.id) {
        return Standing::Agreed;
    }
    Standing::Decide {
        may_rule: reader.may_rule() && standing::may_answer(approval),
    }
}

fn settled(approval: &ApprovalRequest, now: Timestamp) -> Option<Settled> {
    let (word, tone) = match approval.state() {
        ApprovalState::Pending => return None,
        ApprovalState::Approved => ("Approved", "good"),
        ApprovalState::Applied => ("Approved and run", "good"),
        ApprovalState::AutoApproved => ("Approved by a rule", "good"),
        ApprovalState::Denied => ("Denied", "bad"),
        ApprovalState::Expired => ("Expired", "bad"),
        ApprovalState::Withdrawn => ("Withdrawn", "quiet"),
        ApprovalState::Failed => ("Approved, not run", "bad"),
    };
    let reason = approval.decision_reason.as_deref().filter(|reason| !reason.is_empty());
    Some(Settled {
        word,
        tone,
        by: approval.decided_by.as_deref().map(shown),
        reason: reason.map(shown),
        at: approval.resolved_at.map(|at| Moment::of(at, now)),
    })
}

/// One line about a question that is settled: what, how it ended.
#[derive(Template)]
#[template(path = "settled.html")]
pub(super) struct Line {
    id: String,
    command: Html,
    settled: Settled,
}

impl Line {
    pub(super) fn of(approval: &ApprovalRequest, now: Timestamp) -> Option<Self> {
        const CHARS: usize = 160;
        let line = approval.details.get("command").and_then(Value::as_str);
        Some(Self {
            id: approval.id.to_string(),
            command: text::shown(line.unwrap_or(&approval.tool), CHARS),
            settled: settled(approval, now)?,
        })
    }
}

/// What is shown of an act; each part is taken out where it finds its place.
struct Details(Map<String, Value>);

impl Details {
    fn text(&mut self, name: &str) -> Option<String> {
        match self.0.get(name) {
            Some(Value::String(_)) => match self.0.shift_remove(name) {
                Some(Value::String(text)) => Some(text),
                _ => None,
            },
            // What is no text is left for `rest`.
            _ => None,
        }
    }

    fn html(&mut self, name: &str) -> Option<Html> {
        self.text(name).map(|text| shown(&text))
    }

    fn list(&mut self, name: &str) -> Vec<String> {
        let is_list = self
            .0
            .get(name)
            .and_then(Value::as_array)
            .is_some_and(|items| items.iter().all(Value::is_string));
        if !is_list {
            return Vec::new();
        }
        let items = self.0.shift_remove(name);
        let items = items.as_ref().and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    fn pairs(&mut self, name: &str) -> Vec<(Html, Html)> {
        let Some(Value::Object(fields)) = self.0.get(name) else {
            return Vec::new();
        };
        let pairs = fields.iter().map(|(name, value)| (shown(name), plain(value))).collect();
        self.0.shift_remove(name);
        pairs
    }

    /// What found no place.
    fn rest(self) -> Vec<(Html, Html)> {
        self.0.iter().map(|(name, value)| (shown(name), plain(value))).collect()
    }
}

fn plain(value: &Value) -> Html {
    match value {
        Value::String(text) => shown(text),
        other => shown(&serde_json::to_string_pretty(other).unwrap_or_default()),
    }
}
