//! One comment per run: how it stands, and what can be done next. It is changed in place and found again by
//! its first line, which readers do not see.

use std::fmt::Write as _;

use super::vocabulary::{self, DISCUSSION, NEED_INPUT, Trigger};
use crate::audit::{Pending, RecordError};
use crate::clock::Timestamp;
use crate::ids::RunId;
use crate::run::lifecycle::{RunStatus, WaitState};
use crate::run::state::Run;

/// Characters of an answer that are shown; GitHub takes comments of 65,536.
const ANSWER_CHARS_MAX: usize = 20_000;

/// What is kept of a run's comment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptMessage {
    pub run_id: RunId,
    /// None until it is known.
    pub comment_id: Option<u64>,
    /// The version of the run that it tells of.
    pub run_version: u64,
    /// What it says.
    pub text: String,
    /// The labels are as they should be behind the run.
    pub labels_done: bool,
    /// How often telling failed, and when it is tried next.
    pub tries: u32,
    pub not_before: Timestamp,
}

/// Port: comments of runs as a store keeps them.
pub trait Messages: Send + Sync + 'static {
    /// Runs of issues that have changed since their comment was written, or that have ended without their
    /// labels being put right; the longest unchanged first.
    fn untold(&self, now: Timestamp, limit: usize) -> Pending<Result<Vec<Untold>, RecordError>>;
}

/// A run and its comment, where there is one.
pub type Untold = (Run, Option<KeptMessage>);

/// The line that a run's comment begins with.
pub fn marker(run: &RunId) -> String {
    format!("<!-- countersign:run:{run} -->")
}

/// Something that a person can do now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Card {
    /// What it is good for.
    pub title: String,
    pub action: String,
}

/// What can be done next, by where a run stands.
pub fn cards(run: &Run) -> Vec<Card> {
    let card = |title: &str, action: String| Card {
        title: title.to_owned(),
        action,
    };
    let trigger = run.trigger_label.as_deref().and_then(Trigger::of);
    let revise = trigger
        .filter(|trigger| vocabulary::STAGES.contains(&trigger.stage))
        .map(|trigger| vocabulary::revise(trigger.stage));
    let again = run.trigger_label.clone();
    let mut cards = Vec::new();
    match run.status {
        RunStatus::Pending => cards.push(card("Take it back", format!("`countersign runs cancel {}`", run.id))),
        RunStatus::Running => {
            if run.wait_state == Some(WaitState::Mcp) {
                let action = "answer it in the console, or with `countersign approvals list`".to_owned();
                cards.push(card("A question waits for an answer", action));
            }
            cards.push(card("Stop it", format!("`countersign runs cancel {}`", run.id)));
        }
        RunStatus::Succeeded if run.is_talk() => {
            if let Some(label) = again {
                let action = format!("take `{DISCUSSION}` off and put on `{label}`");
                cards.push(card("Have it done", action));
                cards.push(card("Talk on", format!("put on `{label}`")));
            }
        }
        RunStatus::Succeeded => {
            if let Some(number) = run.pull_request_number {
                let action = format!("review #{number}; a review that requests changes sets off the revise");
                cards.push(card("Review", action));
            }
            if let Some(label) = revise {
                cards.push(card("Have it done over", format!("put on `{label}`")));
            }
            if let Some(stage) = trigger.and_then(|trigger| vocabulary::next(trigger.stage)) {
                cards.push(card("Go on", format!("put on `run:{stage}`")));
            }
        }
        RunStatus::Failed | RunStatus::Cancelled => {
            if let Some(label) = again {
                cards.push(card("Try again", format!("take `{label}` off and put it on again")));
            }
            cards.push(card("Ask somebody", format!("put on `{NEED_INPUT}`")));
        }
    }
    cards
}

/// The comment of a run. What an agent or GitHub's users wrote stands in code, where it can neither mention
/// anybody nor break out.
pub fn render(run: &Run, answer: Option<&str>) -> String {
    let label = run.trigger_label.as_deref().unwrap_or("run");
    let mut text = format!(
        "{}\n### {} is {}\n\n",
        marker(&run.id),
        code(label),
        run.status.as_str()
    );
    let mut line = |name: &str, value: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "- {name}: {value}");
    };
    line("Run", &code(run.id.as_str()));
    line("Agent", &code(&run.agent_key));
    line("Set off by", &code(&run.requested_by));
    if let Some(number) = run.pull_request_number {
        line("Pull request", &format!("#{number}"));
    }
    if run.wait_state.is_some() {
        line("Waits for", "an answer; its clock stands still");
    }
    if let Some(said) = &run.reported_status {
        line("The agent says", &code(said));
    }
    if let Some(reason) = &run.reason {
        line("Why", &code(reason));
    }
    if let Some(answer) = answer {
        text.push_str(&quoted(answer));
    }
    text.push_str("\n**Next steps**\n\n");
    for card in cards(run) {
        let _ = writeln!(text, "- **{}**: {}", card.title, card.action);
    }
    text
}

/// What an agent answers in a discussion, as code: within a fence that it cannot close.
fn quoted(answer: &str) -> String {
    let answer: String = answer.chars().take(ANSWER_CHARS_MAX).collect();
    let longest = answer.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("\n**The answer**\n\n{fence}text\n{}\n{fence}\n", answer.trim())
}

/// Text as code on one line.
fn code(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|c| if c == '`' || c.is_control() { ' ' } else { c })
        .take(300)
        .collect();
    let plain = plain.trim();
    if plain.is_empty() {
        "`-`".to_owned()
    } else {
        format!("`{plain}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::lifecycle::RunStep;
    use crate::run::state::tests::{at, sample};

    #[test]
    fn a_comment_begins_with_its_mark_and_says_how_the_run_stands() {
        let run = sample("r1");
        let text = render(&run, None);
        assert_eq!(text.lines().next(), Some("<!-- countersign:run:r1 -->"));
        assert!(text.contains("### `run:dev` is pending"), "{text}");
        assert!(text.contains("runs cancel r1"), "{text}");
    }

    #[test]
    fn what_others_wrote_cannot_mention_anybody_nor_break_out() {
        let mut run = sample("r1").after(RunStep::Start, at(0)).unwrap();
        run.reported_status = Some("`@octo/admins`\n<!-- countersign:run:r2 -->".to_owned());
        let text = render(&run, None);
        assert!(
            text.contains("The agent says: `@octo/admins  <!-- countersign:run:r2 -->`"),
            "{text}"
        );
        assert_eq!(text.matches("\n<!--").count(), 0);
    }

    #[test]
    fn next_steps_follow_from_where_a_run_stands() {
        let running = sample("r1").after(RunStep::Start, at(0)).unwrap();
        let titles = |run: &Run| -> Vec<String> { cards(run).into_iter().map(|card| card.title).collect() };
        assert_eq!(titles(&running), ["Stop it"]);
        let waits = running.waiting(WaitState::Mcp, at(1)).unwrap();
        assert_eq!(titles(&waits), ["A question waits for an answer", "Stop it"]);
        let mut done = running.after(RunStep::Succeed, at(2)).unwrap();
        assert_eq!(titles(&done), ["Have it done over", "Go on"]);
        done.pull_request_number = Some(8);
        assert_eq!(titles(&done)[0], "Review");
        let failed = running.after(RunStep::Fail, at(2)).unwrap();
        assert_eq!(titles(&failed), ["Try again", "Ask somebody"]);
    }
}
