//! What a client can do and wants to hear: its capabilities, the revision it speaks, its log level.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use countersign_gateway::error::{ErrorCode, Refusal};
use serde_json::{Map, Value, json};

use super::revision::{Era, Legacy};

/// The extension for calls that are looked after by polling.
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// What a client said it can do, as far as we ever ask for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Capabilities {
    elicitation: bool,
    sampling: bool,
    roots: bool,
    tasks: bool,
}

/// One thing a client may be able to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Ability {
    /// Show its user a form.
    Elicitation,
    Sampling,
    Roots,
    Tasks,
}

impl Capabilities {
    pub(crate) fn read(declared: &Map<String, Value>) -> Self {
        let has = |name: &str| declared.get(name).is_some_and(Value::is_object);
        // An empty object means forms, as it did before there was another kind.
        let forms = |kinds: &Map<String, Value>| kinds.is_empty() || kinds.contains_key("form");
        let tasks = declared.get("extensions").and_then(|extensions| extensions.get(TASKS));
        Self {
            elicitation: declared
                .get("elicitation")
                .and_then(Value::as_object)
                .is_some_and(forms),
            sampling: has("sampling"),
            roots: has("roots"),
            tasks: tasks.is_some_and(Value::is_object),
        }
    }

    /// What a stored session says of its client.
    pub(crate) fn stored(text: &str) -> Self {
        serde_json::from_str(text).map_or_else(|_| Self::default(), |declared| Self::read(&declared))
    }

    pub(crate) fn has(self, ability: Ability) -> bool {
        match ability {
            Ability::Elicitation => self.elicitation,
            Ability::Sampling => self.sampling,
            Ability::Roots => self.roots,
            Ability::Tasks => self.tasks,
        }
    }

    /// Refuses what needs an ability that this client has not declared.
    pub(crate) fn require(self, ability: Ability) -> Result<(), Refusal> {
        if self.has(ability) {
            return Ok(());
        }
        let (name, declaration) = match ability {
            Ability::Elicitation => ("elicitation", json!({"elicitation": {}})),
            Ability::Sampling => ("sampling", json!({"sampling": {}})),
            Ability::Roots => ("roots", json!({"roots": {}})),
            Ability::Tasks => (TASKS, json!({"extensions": {TASKS: {}}})),
        };
        let message = format!("this needs the client capability `{name}`, which was not declared");
        Err(Refusal::new(ErrorCode::MissingClientCapability, message).with("requiredCapabilities", declaration))
    }
}

/// How severe a log message is; the least severe first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl Level {
    const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }

    pub(crate) fn read(value: &Value) -> Result<Self, Refusal> {
        let name = value.as_str().unwrap_or_default();
        Self::ALL
            .into_iter()
            .find(|level| level.as_str() == name)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::as_str).join("`, `");
                Refusal::new(ErrorCode::InvalidParams, format!("a log level is one of `{names}`"))
            })
    }
}

/// The least severe log message a client wants. Nothing is wanted until the client asks for it, in
/// either era: a log that nobody reads only costs its reader.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogFilter(Arc<AtomicU8>);

impl LogFilter {
    pub(crate) fn of(level: Option<Level>) -> Self {
        let filter = Self::default();
        if let Some(level) = level {
            filter.set(level);
        }
        filter
    }

    pub(crate) fn set(&self, level: Level) {
        self.0.store(level as u8 + 1, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn wants(&self, level: Level) -> bool {
        let least = self.0.load(Ordering::Relaxed);
        least != 0 && level as u8 + 1 >= least
    }
}

/// The client of one request: how it is to be understood, and what may be asked of it.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) era: Era,
    pub(crate) capabilities: Capabilities,
    pub(crate) logs: LogFilter,
}

impl Client {
    pub(crate) fn of_session(revision: Legacy, capabilities: Capabilities) -> Self {
        Self {
            era: Era::Legacy(revision),
            capabilities,
            logs: LogFilter::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(declared: Value) -> Capabilities {
        Capabilities::read(declared.as_object().unwrap())
    }

    #[test]
    fn an_empty_elicitation_means_forms() {
        for (declared, forms) in [
            (json!({"elicitation": {}}), true),
            (json!({"elicitation": {"form": {}}}), true),
            (json!({"elicitation": {"form": {}, "url": {}}}), true),
            (json!({"elicitation": {"url": {}}}), false),
            (json!({"elicitation": true}), false),
            (json!({}), false),
        ] {
            assert_eq!(read(declared.clone()).has(Ability::Elicitation), forms, "{declared}");
        }
    }

    #[test]
    fn what_is_missing_is_named_as_it_would_be_declared() {
        let refusal = read(json!({})).require(Ability::Tasks).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::MissingClientCapability);
        let required = refusal.details["requiredCapabilities"].as_object().unwrap().clone();
        assert!(Capabilities::read(&required).has(Ability::Tasks));
    }

    #[test]
    fn a_filter_lets_through_what_is_as_severe_as_asked_for() {
        let filter = LogFilter::of(None);
        assert!(Level::ALL.into_iter().all(|level| !filter.wants(level)));
        for least in Level::ALL {
            filter.set(least);
            assert!(
                Level::ALL
                    .into_iter()
                    .all(|level| filter.wants(level) == (level >= least))
            );
        }
    }
}
