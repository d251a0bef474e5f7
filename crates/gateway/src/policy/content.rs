//! The policy as the record holds it: everything that decides, in one JSON value, and back.
//!
//! `policy.changed` records [`EffectivePolicy::content`], every decision's record its digest and the
//! caller's keys. From these, [`EffectivePolicy::from_content`] and [`super::decide::decide`] come to
//! the same decision again, whatever the configuration says by then.

pub mod layers;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};
use thiserror::Error;

use super::allowlist::Allowlist;
use super::effective::{
    ApprovalPolicy, CommandPolicy, EffectivePolicy, Layer, Mode, Network, Places, RuleSources, SandboxMode,
};
use super::quantity::{ByteCount, Millicores};
use super::tools::ToolPolicies;
use super::whitelist::{RuleText, Source, WhitelistRule, builtin_rules};
use crate::audit::chain;
use crate::catalog::definition::ToolDefinition;
use crate::session::{Caller, Role};

/// Content that makes no policy.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ContentError {
    #[error("`{0}` is missing, or is not what it should be")]
    Field(&'static str),
    #[error("this program has no built-in whitelist rule `{0}` as the policy was recorded with")]
    BuiltInRule(String),
}

/// The fields of the content that say what an agent's own commands may do. What is added to the content is not
/// shown until it is named here.
const SHOWN_TO_AGENTS: [&str; 19] = [
    "allowlist",
    "allowed_cwd_roots",
    "approval_mode",
    "approval_timeout_ms",
    "cpu_limit",
    "env_allow",
    "helpers",
    "memory_limit",
    "network",
    "path",
    "pids_limit",
    "quorum",
    "read_paths",
    "require",
    "run_as_non_root",
    "sandbox",
    "timeout_seconds",
    "timeout_seconds_max",
    "workspace_root",
];

type Result<T> = std::result::Result<T, ContentError>;

impl EffectivePolicy {
    /// Everything that decides: what `policy.changed` records, so that the digest in a decision's
    /// record leads to the whole policy.
    pub fn content(&self) -> Value {
        let command = &self.command;
        let mut content = self.s0_fields();
        let helpers: Map<_, _> = command
            .helpers
            .iter()
            .map(|(name, list)| (name.clone(), json!(list)))
            .collect();
        let sources = &self.rule_sources;
        let more = json!({
            "timeout_seconds_max": command.timeout_max.as_secs_f64(),
            "pids_limit": command.pids_limit,
            "run_as": command.run_as,
            "allowed_cwd_roots": self.places.cwd_roots.as_deref().map(paths),
            "start": self.places.start.to_string_lossy(),
            "hidden": paths(&self.places.hidden),
            "env_allow": command.env_allow,
            "require": command.require.iter().map(|layer| layer.as_str()).collect::<Vec<_>>(),
            "path": paths(&command.path),
            "read_paths": paths(&command.read_paths),
            "helpers": helpers,
            "quorum": self.approval.quorum,
            "approval_timeout_ms": self.approval.timeout.map(|timeout| timeout.as_millis() as u64),
            "self_approval": self.approval.self_approval,
            "client_decides": self.approval.client_decides,
            "whitelist": self.approval.whitelist.iter().map(whitelist_rule).collect::<Vec<_>>(),
            "rule_sources": {
                "allowlist": sources.allowlist, "workspace": sources.workspace, "cwd_roots": sources.cwd_roots,
                "timeout": sources.timeout, "mode": sources.mode,
            },
        });
        for more in [more, layers::write(self.tools.layers())] {
            if let (Value::Object(content), Value::Object(more)) = (&mut content, more) {
                content.extend(more);
            }
        }
        content
    }

    /// What every command's record repeats as `policy_snapshot`: S0's fields, the mode, the sources,
    /// and the digest of the whole policy.
    pub fn snapshot(&self) -> Value {
        let mut snapshot = self.s0_fields();
        snapshot["digest"] = json!(chain::digest(&self.content()));
        snapshot
    }

    /// What a caller may read of the policy it is under: what its commands may do and what is asked about, and
    /// the tools it is offered. Where the operator's files and credential folders are, and what holds for
    /// others, is for those who may read the record.
    pub fn shown_to(&self, caller: &Caller, tools: &[ToolDefinition]) -> Value {
        let mut content = self.content();
        let digest = json!(chain::digest(&content));
        if caller.role == Role::Agent
            && let Value::Object(fields) = &mut content
        {
            fields.retain(|name, _| SHOWN_TO_AGENTS.contains(&name.as_str()));
        }
        let tools: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
        json!({"digest": digest, "content": content, "tools": tools})
    }

    fn s0_fields(&self) -> Value {
        let command = &self.command;
        json!({
            "allowlist": allowlist(&command.allowlist),
            "timeout_seconds": command.timeout.as_secs_f64(),
            "cpu_limit": command.cpu_limit.to_string(),
            "memory_limit": command.memory_limit.to_string(),
            "run_as_non_root": command.run_as_non_root,
            "workspace_root": self.places.workspace_root.as_ref().map(|root| root.to_string_lossy()),
            "audit_retention_days": command.audit_retention_days,
            "sandbox": command.sandbox.as_str(),
            "network": command.network.as_str(),
            "approval_mode": self.approval.mode.as_str(),
            "sources": self.sources,
        })
    }

    /// The policy that was recorded.
    pub fn from_content(content: &Value) -> Result<Self> {
        let read = Reader(content);
        let entries = read.texts("allowlist")?;
        let allowlist = match entries.as_slice() {
            [] => Allowlist::nothing(),
            entries => Allowlist::from_entries(entries).map_err(|_| ContentError::Field("allowlist"))?,
        };
        let amount = |name| read.text(name);
        let helpers = read.object("helpers")?;
        let sources = Reader(&content["rule_sources"]);
        Ok(Self {
            command: CommandPolicy {
                allowlist,
                timeout: read.seconds("timeout_seconds")?,
                timeout_max: read.seconds("timeout_seconds_max")?,
                cpu_limit: Millicores::parse(&amount("cpu_limit")?).map_err(|_| ContentError::Field("cpu_limit"))?,
                memory_limit: ByteCount::parse(&amount("memory_limit")?)
                    .map_err(|_| ContentError::Field("memory_limit"))?,
                pids_limit: read.whole("pids_limit")?,
                run_as_non_root: read.flag("run_as_non_root")?,
                run_as: read.optional_text("run_as"),
                audit_retention_days: u32::try_from(read.whole("audit_retention_days")?).unwrap_or(u32::MAX),
                sandbox: read.word("sandbox", SandboxMode::parse)?,
                network: read.word("network", Network::parse)?,
                env_allow: read.texts("env_allow")?,
                require: read
                    .texts("require")?
                    .iter()
                    .map(|layer| Layer::parse(layer).ok_or(ContentError::Field("require")))
                    .collect::<Result<_>>()?,
                path: read.paths("path")?,
                read_paths: read.paths("read_paths")?,
                helpers: helpers.iter().map(|(name, list)| (name.clone(), texts(list))).collect(),
            },
            approval: ApprovalPolicy {
                mode: read.word("approval_mode", Mode::parse)?,
                timeout: content["approval_timeout_ms"].as_u64().map(Duration::from_millis),
                quorum: read
                    .whole("quorum")?
                    .try_into()
                    .map_err(|_| ContentError::Field("quorum"))?,
                whitelist: read.each("whitelist", read_whitelist_rule)?,
                self_approval: read.flag("self_approval")?,
                // Policies recorded before there was such an approver have none.
                client_decides: content["client_decides"].as_bool().unwrap_or(false),
            },
            places: Places {
                workspace_root: read.optional_text("workspace_root").map(PathBuf::from),
                cwd_roots: match &content["allowed_cwd_roots"] {
                    Value::Null => None,
                    roots => Some(texts(roots).into_iter().map(PathBuf::from).collect()),
                },
                start: read.text("start")?.into(),
                hidden: read.paths("hidden")?.into(),
            },
            tools: ToolPolicies::new(layers::read(content)?),
            sources: read.texts("sources")?,
            rule_sources: RuleSources {
                allowlist: sources.text("allowlist")?,
                workspace: sources.text("workspace")?,
                cwd_roots: sources.text("cwd_roots")?,
                timeout: sources.text("timeout")?,
                mode: sources.text("mode")?,
            },
        })
    }
}

fn whitelist_rule(rule: &WhitelistRule) -> Value {
    json!({
        "rule": rule.explained(), "reason": rule.reason, "enabled": rule.enabled, "source": rule.source.as_str(),
        "origin": rule.origin,
    })
}

fn read_whitelist_rule(value: &Value) -> Result<WhitelistRule> {
    let read = Reader(value);
    let explained = read.text("rule")?;
    let source = read.word("source", Source::parse)?;
    if source == Source::BuiltIn {
        let known = builtin_rules().into_iter().find(|rule| rule.explained() == explained);
        return known.ok_or(ContentError::BuiltInRule(explained));
    }
    let text = RuleText {
        pattern: &explained,
        reason: &read.text("reason")?,
        enabled: read.flag("enabled")?,
        source,
        matches: &[],
        not_matches: &[],
    };
    let rule = WhitelistRule::new(&text).map_err(|_| ContentError::Field("whitelist"))?;
    Ok(rule.written_in(&read.text("origin")?))
}

fn paths(list: &[PathBuf]) -> Vec<String> {
    list.iter().map(|path| path.to_string_lossy().into_owned()).collect()
}

fn allowlist(list: &Allowlist) -> Vec<String> {
    match list {
        Allowlist::Any => vec!["*".to_owned()],
        Allowlist::Only(_) => {
            let paths = list.paths().iter().map(|path| path.to_string_lossy().into_owned());
            list.names().iter().cloned().chain(paths).collect()
        }
    }
}

fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Reads what this module wrote.
struct Reader<'a>(&'a Value);

impl Reader<'_> {
    fn text(&self, name: &'static str) -> Result<String> {
        self.optional_text(name).ok_or(ContentError::Field(name))
    }

    fn optional_text(&self, name: &str) -> Option<String> {
        self.0[name].as_str().map(str::to_owned)
    }

    fn word<T>(&self, name: &'static str, parse: impl Fn(&str) -> Option<T>) -> Result<T> {
        self.0[name].as_str().and_then(parse).ok_or(ContentError::Field(name))
    }

    fn texts(&self, name: &'static str) -> Result<Vec<String>> {
        self.0[name]
            .as_array()
            .map(|_| texts(&self.0[name]))
            .ok_or(ContentError::Field(name))
    }

    fn paths(&self, name: &'static str) -> Result<Vec<PathBuf>> {
        Ok(self.texts(name)?.into_iter().map(PathBuf::from).collect())
    }

    fn flag(&self, name: &'static str) -> Result<bool> {
        self.0[name].as_bool().ok_or(ContentError::Field(name))
    }

    fn whole(&self, name: &'static str) -> Result<u64> {
        // The canonical form of a number has no kind.
        let number = &self.0[name];
        let whole = number.as_u64().or_else(|| number.as_f64().map(|number| number as u64));
        whole.ok_or(ContentError::Field(name))
    }

    fn seconds(&self, name: &'static str) -> Result<Duration> {
        let seconds = self.0[name].as_f64();
        seconds
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .ok_or(ContentError::Field(name))
    }

    fn object(&self, name: &'static str) -> Result<&Map<String, Value>> {
        self.0[name].as_object().ok_or(ContentError::Field(name))
    }

    fn each<T>(&self, name: &'static str, read: impl Fn(&Value) -> Result<T>) -> Result<Vec<T>> {
        match &self.0[name] {
            Value::Null => Ok(Vec::new()),
            Value::Array(items) => items.iter().map(read).collect(),
            _ => Err(ContentError::Field(name)),
        }
    }
}

#[cfg(test)]
mod tests;
