//! Agents as configured (S1's AgentDefinition), and which driver speaks with each.

use std::collections::BTreeMap;
use std::time::Duration;

use countersign_agents::{Definition, EventFormat, Health, HealthMethod, InputMode, Parsing};
use serde_json::Value as Json;

use super::merge::Effective;
use super::shape::Faults;
use super::tree::Node;

/// How often an agent is looked at, where its definition does not say.
const HEALTH_INTERVAL: Duration = Duration::from_secs(30);
/// How long it may be silent then.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(300);

/// One agent that jobs may start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AgentSettings {
    /// One of the words of `agents[].driver`.
    pub(crate) driver: String,
    pub(crate) definition: Definition,
}

impl AgentSettings {
    /// One that needs no configuration where its program is there.
    fn built_in(name: &str, driver: &str, program: &str) -> Self {
        let agent = serde_json::json!({"name": name, "driver": driver, "command": [program]});
        Self::of(&agent)
    }

    fn of(agent: &Json) -> Self {
        let name = text(agent, "name").unwrap_or_default();
        let env = agent["env"].as_object().into_iter().flatten();
        Self {
            driver: driver(agent, &name),
            definition: Definition {
                command: texts(&agent["command"]),
                env: env
                    .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                    .collect::<BTreeMap<_, _>>(),
                input: match agent["input"].as_str() {
                    Some("open") => InputMode::Open,
                    _ => InputMode::Closed,
                },
                parsing: parsing(&agent["eventParsing"]),
                health: health(&agent["healthCheck"]),
                name,
            },
        }
    }
}

/// The agents of the configuration, in its order.
pub(super) fn read(effective: &Effective) -> Vec<AgentSettings> {
    listed(effective).map(AgentSettings::of).collect()
}

/// Agents that are used without being configured, where their programs are found.
pub(crate) fn built_in() -> [AgentSettings; 2] {
    [
        AgentSettings::built_in("codex", "codex-app-server", "codex"),
        AgentSettings::built_in("claude-code", "claude-stream", "claude"),
    ]
}

/// What one file can say wrong about an agent, beyond shapes.
pub(super) fn examine(agent: &Node, faults: &mut Faults) {
    let word = |section: &str, name: &str| agent.get(section).and_then(|it| it.get(name)).and_then(Node::text);
    if agent.get("command").is_some_and(|it| it.items().is_empty()) {
        faults.push((agent.at, "`agents.command` must name a program".to_owned()));
    }
    let parser = agent.get("eventParsing").and_then(|it| it.get("parser"));
    if word("eventParsing", "format") == Some("custom") && parser.is_none() {
        let message = "`agents.eventParsing.format` `custom` needs `parser`, the program that reads the output";
        faults.push((agent.at, message.to_owned()));
    }
    let check = agent.get("healthCheck").and_then(|it| it.get("command"));
    if word("healthCheck", "method") == Some("custom") && check.is_none() {
        let message = "`agents.healthCheck.method` `custom` needs `command`, the program that looks";
        faults.push((agent.at, message.to_owned()));
    }
}

/// The driver that is named, or the one that goes with the agent's name, or with how its output is read.
fn driver(agent: &Json, name: &str) -> String {
    if let Some(named) = text(agent, "driver") {
        return named;
    }
    let format = agent["eventParsing"]["format"].as_str();
    let derived = match (name, agent["type"].as_str(), format) {
        (_, _, Some("jsonl" | "custom")) => "jsonl",
        ("codex", _, _) => "codex-app-server",
        ("claude-code", _, _) => "claude-stream",
        // An agent that is spoken to by a protocol: the one that is not its maker's own.
        (_, Some("mcp"), None) => "acp",
        (_, _, Some(_) | None) => "jsonl",
    };
    derived.to_owned()
}

fn parsing(parsing: &Json) -> Parsing {
    Parsing {
        format: match parsing["format"].as_str() {
            Some("json-rpc") => EventFormat::JsonRpc,
            Some("custom") => EventFormat::Custom {
                parser: texts(&parsing["parser"]),
            },
            Some(_) | None => EventFormat::Jsonl,
        },
        line_delimited: parsing["lineDelimited"].as_bool().unwrap_or(true),
        event_type_field: text(parsing, "eventTypeField").unwrap_or_else(|| "type".to_owned()),
    }
}

fn health(check: &Json) -> Option<Health> {
    check.as_object()?;
    let millis = |name: &str, otherwise| check[name].as_u64().map_or(otherwise, Duration::from_millis);
    Some(Health {
        method: match check["method"].as_str() {
            Some("heartbeat") => HealthMethod::Heartbeat,
            Some("custom") => HealthMethod::Custom {
                command: texts(&check["command"]),
            },
            Some(_) | None => HealthMethod::ProcessAlive,
        },
        interval: millis("interval", HEALTH_INTERVAL),
        timeout: millis("timeout", HEALTH_TIMEOUT),
    })
}

fn listed(effective: &Effective) -> impl Iterator<Item = &Json> {
    effective.value("agents").as_array().into_iter().flatten()
}

fn text(value: &Json, name: &str) -> Option<String> {
    value[name].as_str().map(str::to_owned)
}

fn texts(list: &Json) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(Json::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_driver_is_the_one_that_is_named_or_the_one_that_fits() {
        for (agent, expected) in [
            (json!({"name": "codex"}), "codex-app-server"),
            (json!({"name": "codex", "driver": "codex-exec"}), "codex-exec"),
            (json!({"name": "codex", "eventParsing": {"format": "jsonl"}}), "jsonl"),
            (json!({"name": "claude-code"}), "claude-stream"),
            (json!({"name": "gemini", "type": "mcp"}), "acp"),
            (
                json!({"name": "mine", "type": "mcp", "eventParsing": {"format": "json-rpc"}}),
                "jsonl",
            ),
            (json!({"name": "mine", "type": "exec"}), "jsonl"),
            (json!({"name": "mine"}), "jsonl"),
        ] {
            assert_eq!(AgentSettings::of(&agent).driver, expected, "{agent}");
        }
    }

    #[test]
    fn a_definition_says_how_an_agent_is_read_and_looked_after() {
        let agent = AgentSettings::of(&json!({
            "name": "mine", "type": "exec", "command": ["mine", "--json"], "env": {"A": "1"}, "input": "open",
            "eventParsing": {"format": "custom", "parser": ["jq"], "lineDelimited": false, "eventTypeField": "kind"},
            "healthCheck": {"method": "heartbeat", "interval": 500, "timeout": 2000},
        }));
        assert_eq!(
            agent.definition,
            Definition {
                name: "mine".to_owned(),
                command: vec!["mine".to_owned(), "--json".to_owned()],
                env: BTreeMap::from([("A".to_owned(), "1".to_owned())]),
                input: InputMode::Open,
                parsing: Parsing {
                    format: EventFormat::Custom {
                        parser: vec!["jq".to_owned()]
                    },
                    line_delimited: false,
                    event_type_field: "kind".to_owned(),
                },
                health: Some(Health {
                    method: HealthMethod::Heartbeat,
                    interval: Duration::from_millis(500),
                    timeout: Duration::from_secs(2),
                }),
            }
        );
    }
}
