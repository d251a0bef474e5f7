//! `policy explain` for tools that run no commands.

use countersign_gateway::error::ErrorCode;
use countersign_gateway::policy::actor::{Context, Target};
use countersign_gateway::policy::decide::Rule;
use countersign_gateway::policy::effective::EffectivePolicy;
use countersign_gateway::policy::explain::{self, TookPart};
use countersign_gateway::policy::tools::{Ruling, ToolUse};
use serde_json::{Map, Value, json};

use super::explain::{Explained, refused};
use crate::start::BadUsage;

pub(super) fn explain(
    policy: &EffectivePolicy,
    context: &Context<'_>,
    tool: &str,
    words: &[String],
) -> Result<Explained, BadUsage> {
    // What an unknown tool takes is unknown as well.
    let arguments = match policy.tools.knows(tool) {
        true => arguments(words)?,
        false => Map::new(),
    };
    let text = |names: &[&str]| names.iter().find_map(|name| arguments.get(*name)?.as_str());
    let used = ToolUse {
        tool,
        action: text(&["action"]),
        target: Target {
            namespace: text(&["kubernetes_namespace", "namespace"]),
            cluster: text(&["cluster"]),
            repository: text(&["repository", "repository_full_name"]),
        },
    };
    let denied = |code: ErrorCode, rule: Rule| ("deny", refused(code), rule, Some(code));
    let (verdict, happens, rule, code) = match policy.tools.ruling(context, &used) {
        Ruling::Allow => (
            "allow",
            "it would act at once, nobody is asked".to_owned(),
            explain::allowing(policy, context, &used),
            None,
        ),
        Ruling::Ask(rule) => (
            "ask",
            "it would act only after a person approves it".to_owned(),
            rule,
            None,
        ),
        Ruling::Deny(rule) => denied(ErrorCode::PolicyDenied, rule),
        Ruling::Absent(rule) => denied(ErrorCode::UnknownTool, rule),
    };
    Ok(Explained {
        verdict,
        happens,
        rule,
        code,
        plan: None,
        took_part: took_part(policy, context, tool),
    })
}

pub(super) fn took_part(policy: &EffectivePolicy, context: &Context<'_>, tool: &str) -> Vec<TookPart> {
    explain::of_tool(policy, context, &ToolUse::of(tool))
}

/// The arguments, written as `NAME=VALUE` or as one JSON object.
fn arguments(words: &[String]) -> Result<Map<String, Value>, BadUsage> {
    if let [only] = words
        && let Ok(Value::Object(fields)) = serde_json::from_str(only)
    {
        return Ok(fields);
    }
    let pair = |word: &String| match word.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), json!(value))),
        _ => Err(BadUsage(format!(
            "`{word}` is neither NAME=VALUE nor a JSON object; this tool runs no commands"
        ))),
    };
    words.iter().map(pair).collect()
}
