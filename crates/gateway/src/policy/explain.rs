//! What would happen to a call, and by which rule: the very functions that decide calls, and nothing runs.

pub(super) mod took_part;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::actor::{Context, RunContext, Target};
use super::decide::{Denial, Rule, Surroundings, Verdict, decide};
use super::effective::EffectivePolicy;
use super::plan::Plan;
use super::tools::{Ruling, ToolUse};
use crate::error::{ErrorCode, Refusal};
use crate::session::Role;
use crate::tools::exec::request::{self, CommandTool};

pub use took_part::TookPart;

/// A call that nobody makes.
#[derive(Clone, PartialEq, Debug)]
pub struct Supposed {
    pub tool: String,
    /// As a client would send them.
    pub arguments: Map<String, Value>,
    pub role: Role,
    pub run: Option<RunContext>,
}

/// What would happen, and by whom.
#[derive(Clone, Debug)]
pub struct Explained {
    /// allow, ask or deny.
    pub verdict: &'static str,
    pub happens: String,
    pub rule: Rule,
    /// What it would be refused with.
    pub code: Option<ErrorCode>,
    /// What would run, for a command that may.
    pub plan: Option<Plan>,
    pub took_part: Vec<TookPart>,
    /// Who would call, as the policies complete it.
    pub keys: Value,
    pub is_in_a_run: bool,
    /// Of the whole policy, weakest first.
    pub sources: Vec<String>,
}

/// Port: the policy in force, for whoever asks about it.
pub trait Explains: Send + Sync + 'static {
    fn explain(&self, call: &Supposed) -> Explained;

    /// `{digest, content}` of the whole policy, free of secrets.
    fn effective(&self) -> Value;
}

/// Explains a call, whatever its tool.
pub fn explain(policy: &EffectivePolicy, call: &Supposed, around: &Surroundings<'_>) -> Explained {
    let context = policy.tools.context(call.role, call.run.as_ref());
    let kind = policy.tools.command_tool(&call.tool);
    match kind {
        Some(kind) => command(policy, &context, kind, &call.arguments, around),
        None => other(policy, &context, call),
    }
}

/// The stations a command passes before it could run: catalog, arguments, policy.
fn command(
    policy: &EffectivePolicy,
    context: &Context<'_>,
    kind: CommandTool,
    arguments: &Map<String, Value>,
    around: &Surroundings<'_>,
) -> Explained {
    let (verdict, took_part) = match (
        policy.tools.sees(context, kind.name()),
        request::read(kind.clone(), arguments),
    ) {
        (Err(rule), _) => {
            let refusal = Refusal::new(ErrorCode::UnknownTool, rule.reason.clone());
            let part = took_part::of_tool(policy, context, &ToolUse::of(kind.name()));
            (Verdict::Deny(Denial { refusal, rule }), part)
        }
        (Ok(()), Err(refusal)) => {
            let rule = Rule {
                name: "arguments".to_owned(),
                source: policy.sources.last().cloned().unwrap_or_default(),
                reason: refusal.message.clone(),
            };
            (Verdict::Deny(Denial { refusal, rule }), Vec::new())
        }
        (Ok(()), Ok(request)) => (
            decide(policy, context, &request, around),
            took_part::of_command(policy, context, &request, around),
        ),
    };
    let (happens, code) = match &verdict {
        Verdict::Allow(permit) if permit.auto_approved => (
            "it would run at once; the whitelist answers for a person, and no program may be started but those it names"
                .to_owned(),
            None,
        ),
        Verdict::Allow(_) => ("it would run at once, nobody is asked".to_owned(), None),
        Verdict::Ask(_) => ("it would run only after a person approves it".to_owned(), None),
        Verdict::Deny(denial) => (refused(denial.refusal.code), Some(denial.refusal.code)),
    };
    Explained {
        verdict: verdict.word(),
        happens,
        rule: verdict.rule().clone(),
        code,
        plan: verdict.plan().cloned(),
        took_part,
        keys: context.recorded(),
        is_in_a_run: context.is_in_a_run(),
        sources: policy.sources.clone(),
    }
}

/// Tools that run no commands.
fn other(policy: &EffectivePolicy, context: &Context<'_>, call: &Supposed) -> Explained {
    let text = |names: &[&str]| names.iter().find_map(|name| call.arguments.get(*name)?.as_str());
    let used = ToolUse {
        tool: &call.tool,
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
            took_part::allowing(policy, context, &used),
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
    Explained {
        verdict,
        happens,
        rule,
        code,
        plan: None,
        took_part: took_part::of_tool(policy, context, &ToolUse::of(&call.tool)),
        keys: context.recorded(),
        is_in_a_run: context.is_in_a_run(),
        sources: policy.sources.clone(),
    }
}

fn refused(code: ErrorCode) -> String {
    format!("it would be refused with {}", code.name())
}

impl Explained {
    pub fn to_json(&self) -> Value {
        let part = |part: &TookPart| json!({"rule": part.rule, "source": part.source, "effect": part.effect});
        let mut answer = json!({
            "verdict": self.verdict,
            "rule": self.rule.name,
            "source": self.rule.source,
            "sources": self.sources,
            "reason": self.rule.reason,
            "took_part": self.took_part.iter().map(part).collect::<Vec<_>>(),
            "keys": self.keys,
            "programs": self.plan.as_ref().map(Plan::program_names).unwrap_or_default(),
        });
        if let Some(plan) = &self.plan {
            answer["cwd"] = json!(plan.place.cwd.path.to_string_lossy());
            answer["timeout_ms"] = json!(plan.timeout.as_millis());
            answer["sandbox"] = json!(plan.sandbox.as_str());
            answer["network"] = json!(plan.network.as_str());
        }
        if let Some(code) = self.code {
            answer["error_code"] = json!(code.name());
        }
        answer
    }
}

impl Supposed {
    /// The run that a request describes, by the names of its fields; none where it says nothing.
    pub fn run_of(fields: &Map<String, Value>) -> Result<Option<RunContext>, Refusal> {
        let mut run = RunContext::default();
        for (name, value) in fields {
            let text = value.as_str().map(str::to_owned);
            let place = match name.as_str() {
                "agent_key" => &mut run.agent_key,
                "label" => &mut run.label,
                "project" => &mut run.project,
                "namespace" => &mut run.namespace,
                "cluster" => &mut run.cluster,
                "repository" => &mut run.repository,
                "labels" => {
                    let labels = value.as_array().into_iter().flatten().map(Value::as_str);
                    let labels: Option<BTreeSet<String>> = labels.map(|label| label.map(str::to_owned)).collect();
                    run.labels = labels
                        .filter(|_| value.is_array())
                        .ok_or_else(|| wrong("`run.labels` is a list of texts".to_owned()))?;
                    continue;
                }
                unknown => return Err(wrong(format!("`run` has no field `{unknown}`"))),
            };
            if text.is_none() && !value.is_null() {
                return Err(wrong(format!("`run.{name}` is a text")));
            }
            *place = text;
        }
        Ok((run != RunContext::default()).then_some(run))
    }
}

fn wrong(message: String) -> Refusal {
    Refusal::new(ErrorCode::InvalidArguments, message)
}

#[cfg(test)]
pub(super) mod tests;
