//! Policy: what is in force, and what it would say to a call that nobody makes.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use countersign_gateway::policy::explain::{Explained, Supposed};
use countersign_gateway::policy::plan::Plan;
use countersign_gateway::session::Role;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Console;
use super::access::Reader;
use super::event::tone_of;
use super::page::{self, Failure, Frame, Place};
use super::text::{self, Html};
use super::time::spoken_millis;
use crate::limits::TEXT_CHARS_SHOWN;

#[derive(Template)]
#[template(path = "policy.html")]
struct Policy {
    frame: Frame,
    digest: Html,
    mode: Html,
    mode_means: &'static str,
    facts: Vec<(&'static str, Html)>,
    allowlist: Vec<Html>,
    whitelist: Vec<Rule>,
    tools: Vec<Tool>,
    layers: Vec<(Html, Html)>,
    sources: Vec<Html>,
    whole: Html,
    supposed: Wanted,
    roles: &'static [&'static str],
    explained: Option<Answer>,
}

struct Rule {
    rule: Html,
    reason: Html,
    source: Html,
    is_enabled: bool,
}

struct Tool {
    pattern: Html,
    approval: Html,
    more: Html,
    source: Html,
}

struct Answer {
    verdict: &'static str,
    tone: &'static str,
    happens: String,
    rule: Html,
    source: Html,
    reason: Html,
    programs: Vec<Html>,
    took_part: Vec<Part>,
}

/// A rule that was looked at, and what it said.
struct Part {
    rule: Html,
    source: Html,
    effect: Html,
    tone: &'static str,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    tool: String,
    command: String,
    role: String,
}

pub(super) async fn page(
    State(console): State<Arc<Console>>,
    reader: Reader,
    Query(mut wanted): Query<Wanted>,
) -> Result<Response, Failure> {
    let effective = console.office.policy.effective();
    let content = &effective["content"];
    let explained = match wanted.command.trim().is_empty() && wanted.tool.trim().is_empty() {
        true => None,
        false => Some(Answer::of(console.office.policy.explain(&wanted.supposed()))),
    };
    if wanted.tool.is_empty() {
        wanted.tool = "execute_command".to_owned();
    }
    let mode = content["approval_mode"].as_str().unwrap_or_default();
    let policy = Policy {
        frame: Frame::of(&console, &reader, Some(Place::Policy)).await?,
        digest: shown(&effective["digest"]),
        mode: shown(&content["approval_mode"]),
        mode_means: meaning(mode),
        facts: facts(content),
        allowlist: each(&content["allowlist"], shown),
        whitelist: each(&content["whitelist"], Rule::of),
        tools: each(&content["tools"], Tool::of)
            .into_iter()
            .chain(each(&content["default_matrix"], Tool::of))
            .collect(),
        layers: layers(&content["policies"]),
        sources: each(&content["sources"], shown),
        whole: text::lines(
            &serde_json::to_string_pretty(content).unwrap_or_default(),
            10 * TEXT_CHARS_SHOWN,
        ),
        supposed: wanted,
        roles: &["agent", "operator"],
        explained,
    };
    Ok(page::html(StatusCode::OK, &policy))
}

fn meaning(mode: &str) -> &'static str {
    match mode {
        "untrusted" => "Every command asks a person, unless the whitelist answers for one.",
        "on-request" => "Commands run confined. One that asks for more than that asks a person.",
        "on-failure" => "Commands run confined. One that the confinement seems to have broken asks to run without it.",
        "never" => "Nobody is asked: what policy does not allow is denied.",
        _ => "",
    }
}

/// A value as a person reads it.
fn shown(value: &Value) -> Html {
    text::shown(&plain(value), TEXT_CHARS_SHOWN)
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::Bool(truth) => if *truth { "yes" } else { "no" }.to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64() {
            Some(number) => number.to_string(),
            None => number.to_string(),
        },
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| format!("{name}: {}", plain(value));
            fields.iter().map(field).collect::<Vec<_>>().join("; ")
        }
    }
}

fn each<T>(list: &Value, show: impl Fn(&Value) -> T) -> Vec<T> {
    list.as_array().into_iter().flatten().map(show).collect()
}

fn facts(content: &Value) -> Vec<(&'static str, Html)> {
    const NAMES: [(&str, &str); 15] = [
        ("Workspace", "workspace_root"),
        ("Directories", "allowed_cwd_roots"),
        ("Sandbox", "sandbox"),
        ("Network", "network"),
        ("Layers that must hold", "require"),
        ("Time limit, seconds", "timeout_seconds"),
        ("At most, seconds", "timeout_seconds_max"),
        ("CPU", "cpu_limit"),
        ("Memory", "memory_limit"),
        ("Processes", "pids_limit"),
        ("Never as root", "run_as_non_root"),
        ("People who must agree", "quorum"),
        ("Variables let through", "env_allow"),
        ("Days of record", "audit_retention_days"),
        ("Own requests at a terminal", "self_approval"),
    ];
    let mut facts: Vec<(&'static str, Html)> = NAMES
        .iter()
        .map(|(label, name)| (*label, shown(&content[*name])))
        .collect();
    let patience = content["approval_timeout_ms"].as_u64();
    let patience = patience.map_or_else(|| "for ever".to_owned(), spoken_millis);
    facts.push(("Questions wait", text::shown(&patience, TEXT_CHARS_SHOWN)));
    facts
}

/// What agents, labels and projects add.
fn layers(policies: &Value) -> Vec<(Html, Html)> {
    let mut layers = Vec::new();
    for (section, keys) in policies.as_object().into_iter().flatten() {
        for (key, policy) in keys.as_object().into_iter().flatten() {
            let name = text::shown(&format!("{section} {key}"), TEXT_CHARS_SHOWN);
            layers.push((name, shown(policy)));
        }
    }
    layers
}

impl Rule {
    fn of(rule: &Value) -> Self {
        Self {
            rule: shown(&rule["rule"]),
            reason: shown(&rule["reason"]),
            source: shown(&rule["origin"]),
            is_enabled: rule["enabled"] != false,
        }
    }
}

impl Tool {
    fn of(entry: &Value) -> Self {
        let mut more: Map<String, Value> = entry.as_object().cloned().unwrap_or_default();
        for name in ["pattern", "approval", "source", "sets"] {
            more.shift_remove(name);
        }
        let more = match more.is_empty() {
            true => Html::default(),
            false => shown(&Value::Object(more)),
        };
        Self {
            pattern: shown(&entry["pattern"]),
            approval: shown(&entry["approval"]),
            more,
            source: shown(&entry["source"]),
        }
    }
}

impl Wanted {
    /// The call as a client would send it.
    fn supposed(&self) -> Supposed {
        let words: Vec<&str> = self.command.split_whitespace().collect();
        let tool = match self.tool.trim() {
            "" => "execute_command",
            tool => tool,
        };
        let arguments = match tool {
            "execute_command" => json!({"command": self.command.trim()}),
            "execute_process" => json!({"file": words.first(), "args": words.get(1..).unwrap_or_default()}),
            "run_command" => json!({
                "command": words.first(),
                "args": words.get(1..).unwrap_or_default(),
                "working_directory": ".",
            }),
            _ => serde_json::from_str(&self.command).unwrap_or_else(|_| json!({})),
        };
        Supposed {
            tool: tool.to_owned(),
            arguments: arguments.as_object().cloned().unwrap_or_default(),
            role: Role::parse(&self.role).unwrap_or(Role::Agent),
            run: None,
        }
    }
}

impl Answer {
    fn of(explained: Explained) -> Self {
        let cell = |text: &str| text::shown(text, TEXT_CHARS_SHOWN);
        let programs = explained.plan.as_ref().map(Plan::program_names).unwrap_or_default();
        let parts = explained.took_part.iter();
        Self {
            verdict: explained.verdict,
            tone: tone_of(explained.verdict),
            rule: cell(&explained.rule.name),
            source: cell(&explained.rule.source),
            reason: cell(&explained.rule.reason),
            programs: programs.iter().map(|program| cell(program)).collect(),
            took_part: parts
                .map(|part| Part {
                    rule: cell(&part.rule),
                    source: cell(&part.source),
                    effect: cell(&part.effect),
                    tone: tone_of(&part.effect),
                })
                .collect(),
            happens: explained.happens,
        }
    }
}

#[cfg(test)]
mod tests {
    use countersign_gateway::tools::exec::request::CommandTool;
    use countersign_gateway::tools::exec::schema;

    use super::*;

    #[test]
    fn what_is_explained_is_a_call_that_the_tool_takes() {
        let definitions = schema::definitions();
        for tool in CommandTool::ALL.map(|tool| tool.name().to_owned()) {
            let definition = definitions.iter().find(|it| *it.name == tool).unwrap();
            let wanted = Wanted {
                tool: tool.clone(),
                command: "git log -3".to_owned(),
                ..Wanted::default()
            };
            let arguments = Value::Object(wanted.supposed().arguments);
            assert!(
                jsonschema::is_valid(&definition.input_schema, &arguments),
                "{tool} does not take {arguments}"
            );
        }
    }
}
