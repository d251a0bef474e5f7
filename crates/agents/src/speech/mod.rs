//! Agents that talk over their standard streams, a JSON value a line.
//!
//! What the lines of one agent mean is a [`Speech`]: a pure reading of lines that says what to tell and what to
//! write. [`Talk`] is all that they share: the process, its pipes, its end, and the end of what it left.

mod listen;
mod talk;

use countersign_gateway::job::driver::{AgentAnswer, AgentEvent, AgentEventKind, DriverError, Input, TurnEnd};
use serde_json::Value;

use crate::process::Ending;

pub(crate) use talk::{Opening, Talk};

/// One agent's language. Nothing in it waits or reads a clock.
pub(crate) trait Speech: Send + 'static {
    /// What is written before anything was heard.
    fn begin(&mut self) -> Vec<Value>;

    /// Reads a line.
    fn hear(&mut self, line: &str) -> Vec<Step>;

    /// A further message.
    fn send(&mut self, message: Vec<Input>) -> Result<Vec<Value>, DriverError>;

    /// The answer to a question that it asked; nothing for one that is no longer open.
    fn answer(&mut self, question: &str, answer: AgentAnswer) -> Result<Vec<Value>, DriverError>;

    /// The running turn shall end.
    fn interrupt(&mut self) -> Interruption;

    /// Whether a turn runs.
    fn is_busy(&self) -> bool;

    /// Whether it waits for an answer of ours, and so may be silent.
    fn is_waiting(&self) -> bool;

    /// It is ended because of this.
    fn condemn(&mut self, reason: &str);

    /// The process has ended, with these last words on its error stream.
    fn gone(&mut self, ending: Ending, last_words: &str) -> Vec<AgentEvent>;
}

/// How an agent is asked to end its turn.
#[derive(Debug, PartialEq)]
pub(crate) enum Interruption {
    /// By these lines; it lives on.
    Words(Vec<Value>),
    /// It knows no words for it: its process is ended.
    Signals,
}

/// What follows from a line.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    Tell(AgentEvent),
    Write(Value),
    /// A turn begins: what runs from here on is its own.
    Begin,
    /// It does what nobody asked for: its process is ended.
    End,
}

/// An event and the line that said so.
pub(crate) fn tell(kind: AgentEventKind, raw: &Value) -> Step {
    Step::Tell(AgentEvent { kind, raw: raw.clone() })
}

/// What only we noticed.
pub(crate) fn noticed(kind: AgentEventKind) -> AgentEvent {
    AgentEvent { kind, raw: Value::Null }
}

/// Why a process is ended in the middle of a turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It went by itself.
    Open,
    Interrupted,
    Condemned(String),
}

/// How a turn ended whose process went away in the middle of it.
pub(crate) fn cut_off(agent: &str, fate: &Fate, ending: Ending, last_words: &str) -> AgentEvent {
    let end = match fate {
        Fate::Interrupted => TurnEnd::Interrupted,
        Fate::Condemned(reason) => TurnEnd::Failed {
            message: reason.clone(),
            retryable: true,
        },
        Fate::Open => TurnEnd::Crashed {
            message: how_it_ended(agent, ending, last_words),
            status: ending.status,
            signal: ending.signal,
        },
    };
    noticed(AgentEventKind::TurnEnded(end))
}

/// The end of a process in a sentence, with the last line of what it said to nobody.
pub(crate) fn how_it_ended(agent: &str, ending: Ending, last_words: &str) -> String {
    let how = match (ending.status, ending.signal) {
        (Some(status), _) => format!("{agent} ended with status {status}"),
        (None, Some(signal)) => format!("{agent} was ended by signal {signal}"),
        (None, None) => format!("{agent} ended"),
    };
    match last_words.lines().rev().map(str::trim).find(|line| !line.is_empty()) {
        Some(words) => format!("{how}: {words}"),
        None => how,
    }
}

/// Why a message is not taken in the middle of a turn.
pub(crate) fn is_busy() -> DriverError {
    DriverError::Unsupported(
        "this agent takes no word into a running turn; wait for its end or interrupt it".to_owned(),
    )
}

/// A value at a path of names, as text.
pub(crate) fn text_at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(value, |value, name| value.get(name))?.as_str()
}

/// A value at a path of names, as a whole number.
pub(crate) fn number_at(value: &Value, path: &[&str]) -> Option<u64> {
    path.iter().try_fold(value, |value, name| value.get(name))?.as_u64()
}

/// Messages as one text, for agents that take nothing else.
pub(crate) fn as_text(message: &[Input]) -> Result<String, DriverError> {
    let parts: Result<Vec<&str>, DriverError> = message
        .iter()
        .map(|input| match input {
            Input::Text(text) => Ok(text.as_str()),
            Input::Image { .. } => Err(DriverError::Unsupported(
                "this agent takes text only; describe the picture instead".to_owned(),
            )),
        })
        .collect();
    parts.map(|parts| parts.join("\n\n"))
}
