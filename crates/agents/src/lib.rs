//! Coding agents: how each is spoken to, and how their processes are looked after.
//!
//! A *driver* knows one protocol. [`process`] starts agents, finds everything that they started, and ends it.
//! Between them is [`speech`]: agents that talk over pipes differ only in what their lines mean, so a driver
//! of that kind is a pure reading of lines.
//!
//! Nothing here decides. What an agent asks goes to whoever follows its events, and an answer comes back.

#![forbid(unsafe_code)]

pub mod limits;
pub mod process;

mod remembered;
mod speech;
mod turns;

mod acp;
mod claude_stream;
mod codex_app_server;
mod codex_exec;
mod jsonl;

mod probe;

use std::sync::Arc;

use countersign_gateway::job::driver::AgentDriver;

pub use acp::Acp;
pub use claude_stream::ClaudeStream;
pub use codex_app_server::CodexAppServer;
pub use codex_exec::CodexExec;
pub use jsonl::{Definition, EventFormat, Health, HealthMethod, InputMode, Jsonl, Parsing};
pub use process::{Household, Launcher};

/// The driver that `agents[].driver` names, for an agent as it is defined; none for a name that is none.
pub fn driver(name: &str, launcher: Launcher, definition: Definition) -> Option<Arc<dyn AgentDriver>> {
    let command = definition.command.clone();
    Some(match name {
        "codex-app-server" => Arc::new(CodexAppServer::new(launcher, command)),
        "codex-exec" => Arc::new(CodexExec::new(launcher, command)),
        "claude-stream" => Arc::new(ClaudeStream::new(launcher, command)),
        "acp" => Arc::new(Acp::new(launcher, command)),
        "jsonl" => Arc::new(Jsonl::new(launcher, definition)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_driver_goes_by_its_own_name() {
        let household = Household {
            identity: None,
            path: String::new(),
            home: "/".into(),
            tmp: "/".into(),
            hidden: Vec::new(),
            runtime: "/".into(),
        };
        let definition = Definition {
            name: "a".to_owned(),
            command: vec!["a".to_owned()],
            env: Default::default(),
            input: InputMode::Closed,
            parsing: Parsing {
                format: EventFormat::Jsonl,
                line_delimited: true,
                event_type_field: "type".to_owned(),
            },
            health: None,
        };
        let made = |name: &str| driver(name, Launcher::new(household.clone()), definition.clone());
        for name in ["codex-app-server", "codex-exec", "claude-stream", "acp", "jsonl"] {
            assert_eq!(made(name).map(|driver| driver.name()), Some(name));
        }
        assert!(made("codex").is_none());
    }
}
