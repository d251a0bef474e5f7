//! What an operator says of an agent: how it is started, read and looked after.

use std::collections::BTreeMap;
use std::time::Duration;

/// One entry of `agents`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Definition {
    pub name: String,
    /// The program and its arguments; the prompt comes after them.
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub input: InputMode,
    pub parsing: Parsing,
    pub health: Option<Health>,
}

/// Whether the agent is spoken to while it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InputMode {
    Closed,
    /// Its questions are answered on its input.
    Open,
}

/// How its output is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parsing {
    pub format: EventFormat,
    /// An event a line; otherwise events follow each other without a sign between them.
    pub line_delimited: bool,
    /// Where an event says what it is.
    pub event_type_field: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EventFormat {
    /// Events are notifications: their content is in `params`.
    JsonRpc,
    Jsonl,
    /// A program that reads the agent's output and writes events as lines of JSON.
    Custom {
        parser: Vec<String>,
    },
}

/// How it is noticed that an agent hangs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    pub method: HealthMethod,
    /// How often it is looked at.
    pub interval: Duration,
    /// How long it may be silent, or a check may take.
    pub timeout: Duration,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HealthMethod {
    /// It is well while its process runs.
    ProcessAlive,
    /// It is well while it says something now and then.
    Heartbeat,
    /// A program says so by its exit status.
    Custom { command: Vec<String> },
}
