//! What the demo says: lines for a person, or one JSON value at the end for a program.

use std::process::{Command, Stdio};

use countersign_gateway::approval::ballot::Choice;
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::audit::reading::Proved;
use serde_json::{Value, json};

use super::Outcome;
use super::place::Place;
use super::script::Step;
use crate::cli::Demo;
use crate::terminal::{Cell, Page, Tone, clean, count};

/// As much of an output as a demo needs.
const OUTPUT_LINES_SHOWN: usize = 4;

pub(super) enum Teller {
    /// Who sits at a terminal and answers with its keys.
    Person,
    /// Who reads what is said, and answers in the console.
    Reader,
    Program,
}

impl Teller {
    pub(super) fn of(demo: &Demo, has_keys: bool) -> Self {
        match (demo.json, has_keys) {
            (true, _) => Self::Program,
            (false, true) => Self::Person,
            (false, false) => Self::Reader,
        }
    }

    pub(super) fn welcome(&self, place: &Place, invitation: &str, answers_itself: bool) {
        let here = match self {
            _ if answers_itself => "Questions are answered by `--auto`; watch them there.",
            Self::Person => "Decide there, or here: y approves, n denies, q leaves.",
            Self::Reader | Self::Program => "Questions are answered there, or by `--auto approve`.",
        };
        self.lines(&[
            "An agent is about to ask this machine for five things.".to_owned(),
            format!(
                "All of it happens in {}, which goes when you leave.",
                place.base().display()
            ),
            String::new(),
            invitation.to_owned(),
            here.to_owned(),
        ]);
    }

    pub(super) fn step(&self, number: usize, step: &Step) {
        self.told(|page| {
            page.line("")?;
            let command = page.paint(Tone::Strong, &clean(&step.command));
            page.line(format_args!("{number}  the agent asks: {command}"))?;
            page.line(format_args!("   {}", step.point))
        });
    }

    pub(super) fn question(&self, question: &ApprovalRequest) {
        let detail = |name: &str| question.details.get(name).and_then(Value::as_str).map(clean);
        self.told(|page| {
            let lead = page.paint(Tone::Caution, "waits for you");
            let reason = detail("reason").unwrap_or_default();
            page.line(format_args!("   {lead}: {reason}"))?;
            if let Some(justification) = detail("justification") {
                page.line(format_args!("   the agent says: {justification}"))?;
            }
            page.line(match self {
                Self::Person => "   y approve   n deny   (or in the console)",
                Self::Reader | Self::Program => "   it is answered in the console",
            })
        });
    }

    pub(super) fn outcome(&self, outcome: &Outcome) {
        let text = |name: &str| outcome.result[name].as_str().unwrap_or_default();
        self.told(|page| {
            let tone = if text("status") == "ok" { Tone::Good } else { Tone::Bad };
            let status = page.paint(tone, text("status"));
            let ended = format!("   {status} {}", clean(text("error_message")));
            page.line(ended.trim_end())?;
            for line in text("stdout").lines().take(OUTPUT_LINES_SHOWN) {
                page.line(format_args!("   | {}", clean(line)))?;
            }
            Ok(())
        });
    }

    /// The record and its proof, and where to go from here.
    pub(super) fn conclusion(&self, outcomes: &[Outcome], proved: &Proved) -> anyhow::Result<()> {
        let mut page = Page::stdout();
        match self {
            Self::Program => page.json(&summary(outcomes, proved))?,
            Self::Person | Self::Reader => {
                page.line("\nWhat the record keeps of it:")?;
                let rows: Vec<Vec<Cell>> = outcomes.iter().map(cells).collect();
                page.table(&rows)?;
                match proved {
                    Proved::Sound { rows, .. } => {
                        let sound = page.paint(Tone::Good, "sound");
                        page.line(format_args!(
                            "{} in a hash chain, proved {sound}; a changed row would be named.",
                            count(*rows, "event")
                        ))?;
                    }
                    Proved::Flawed { seq: Some(seq), fault } => {
                        page.line(format_args!("row {seq} is not sound: {fault}"))?;
                    }
                    Proved::Flawed { seq: None, fault } => {
                        page.line(format_args!("the record is not sound: {fault}"))?;
                    }
                }
                page.line("\nNext:")?;
                page.line("  countersign connect claude-code --write   let your own agent ask")?;
                page.line("  countersign serve                         the console for everything that waits")?;
                page.line("  countersign approvals watch               the same in a terminal")?;
            }
        }
        page.flush()
    }

    pub(super) fn farewell(&self) {
        self.lines(&[String::new(), "Left; nothing stays behind.".to_owned()]);
    }

    fn lines(&self, lines: &[String]) {
        self.told(|page| lines.iter().try_for_each(|line| page.line(line)));
    }

    /// A demo that nobody reads goes on to its end.
    fn told(&self, tell: impl FnOnce(&mut Page) -> anyhow::Result<()>) {
        match self {
            Self::Program => {}
            Self::Person | Self::Reader => {
                let mut page = Page::stdout();
                let _ = tell(&mut page).and_then(|()| page.flush());
            }
        }
    }
}

fn decision(question: Option<&ApprovalRequest>) -> &'static str {
    match question.map(ApprovalRequest::decision) {
        None => "not asked",
        Some(None) => "open",
        Some(Some(Choice::Allow)) => "approved",
        Some(Some(Choice::Deny)) => "denied",
    }
}

fn cells(outcome: &Outcome) -> Vec<Cell> {
    let text = |name: &str| outcome.result[name].as_str().unwrap_or_default();
    let tone = if text("status") == "ok" { Tone::Good } else { Tone::Bad };
    vec![
        Cell::new(tone, format!("  {}", text("status"))),
        Cell::plain(decision(outcome.question.as_ref())),
        Cell::new(Tone::Strong, &outcome.step.command),
        Cell::new(Tone::Quiet, text("error_code")),
    ]
}

fn summary(outcomes: &[Outcome], proved: &Proved) -> Value {
    let steps: Vec<Value> = outcomes
        .iter()
        .map(|outcome| {
            json!({
                "command": outcome.step.command,
                "tool": outcome.step.tool,
                "status": outcome.result["status"],
                "error_code": outcome.result["error_code"],
                "decision": decision(outcome.question.as_ref()),
                "rule": outcome.question.as_ref().and_then(|question| question.details.get("rule").cloned()),
            })
        })
        .collect();
    let record = match proved {
        Proved::Sound { rows, .. } => json!({"sound": true, "rows": rows}),
        Proved::Flawed { seq, fault } => json!({"sound": false, "row": seq, "problem": fault}),
    };
    json!({"steps": steps, "record": record})
}

/// Opens an address in the user's browser, where there is one.
pub(super) fn open(address: &str) {
    let mut browser = Command::new("xdg-open");
    browser
        .arg(address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Err(error) = browser.spawn() {
        tracing::warn!(%error, "no browser could be opened; follow the address above");
    }
}
