//! `policy explain`: the decision that a call would get, from the very functions that decide calls.

use std::collections::BTreeMap;

use countersign_exec::Machine;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::policy::actor::{Context, RunContext};
use countersign_gateway::policy::decide::{Denial, Rule, Surroundings, Verdict, decide};
use countersign_gateway::policy::effective::{EffectivePolicy, Network, SandboxMode};
use countersign_gateway::policy::explain::{self, TookPart};
use countersign_gateway::policy::plan::{Plan, PlannedAct};
use countersign_gateway::session::Role;
use countersign_gateway::tools::exec::request::{self, CommandTool};
use serde_json::{Map, Value, json};

use super::tool;
use crate::cli::{Explain, ExplainRole};
use crate::config::Flags;
use crate::start::{BadUsage, Started};
use crate::terminal::{Page, Tone, clean, shortened};

/// The rule for git alone names every option that it does not cover.
const RULE_CHARS_MAX: usize = 100;

/// What would happen, and by whom.
pub(super) struct Explained {
    /// allow, ask or deny.
    pub(super) verdict: &'static str,
    pub(super) happens: String,
    pub(super) rule: Rule,
    pub(super) code: Option<ErrorCode>,
    /// What would run, for a command that may.
    pub(super) plan: Option<Plan>,
    pub(super) took_part: Vec<TookPart>,
}

pub(super) fn run(flags: &Flags, asked: &Explain) -> anyhow::Result<()> {
    let kind = CommandTool::ALL.into_iter().find(|tool| tool.name() == asked.tool);
    let command = kind
        .map(|kind| Ok::<_, BadUsage>((kind, arguments(kind, asked)?)))
        .transpose()?;
    let started = Started::load(flags)?;
    let policy = &started.policy;
    let run = run_context(asked);
    let role = match asked.role {
        ExplainRole::Agent => Role::Agent,
        ExplainRole::Operator => Role::Operator,
    };
    let context = policy.tools.context(role, run.as_ref());
    let explained = match &command {
        Some((kind, arguments)) => explain_command(policy, &context, *kind, arguments),
        None => tool::explain(policy, &context, &asked.tool, &asked.argv)?,
    };
    let mut page = Page::stdout();
    if asked.json {
        page.json(&as_json(&started, &context, &explained))?;
    } else {
        say(&mut page, &started, &context, &explained)?;
    }
    page.flush()
}

/// The run that the flags describe; none where they say nothing.
fn run_context(asked: &Explain) -> Option<RunContext> {
    let run = RunContext {
        agent_key: asked.agent_key.clone(),
        label: asked.label.clone(),
        project: asked.project.clone(),
        namespace: asked.namespace.clone(),
        repository: asked.repository.clone(),
        ..RunContext::default()
    };
    (run != RunContext::default()).then_some(run)
}

/// The arguments as a client would send them.
fn arguments(tool: CommandTool, asked: &Explain) -> Result<Map<String, Value>, BadUsage> {
    let cwd = asked.cwd.as_deref();
    let (first, rest) = asked
        .argv
        .split_first()
        .ok_or_else(|| BadUsage("name a command behind `--`".to_owned()))?;
    let mut arguments = Map::new();
    let mut set = |name: &str, value: Value| {
        arguments.insert(name.to_owned(), value);
    };
    match tool {
        CommandTool::ExecuteCommand if !rest.is_empty() => {
            let message = format!(
                "`execute_command` takes the whole line as one argument, not {}; quote it",
                asked.argv.len()
            );
            return Err(BadUsage(message));
        }
        CommandTool::ExecuteCommand => set("command", json!(first)),
        CommandTool::ExecuteProcess => {
            set("file", json!(first));
            set("args", json!(rest));
        }
        CommandTool::RunCommand => {
            set("command", json!(first));
            set("args", json!(rest));
            set("working_directory", json!(cwd.unwrap_or(".")));
        }
    }
    if let (CommandTool::ExecuteCommand | CommandTool::ExecuteProcess, Some(cwd)) = (tool, cwd) {
        set("cwd", json!(cwd));
    }
    Ok(arguments)
}

/// The stations a call passes before it could run: catalog, arguments, policy.
fn explain_command(
    policy: &EffectivePolicy,
    context: &Context<'_>,
    kind: CommandTool,
    arguments: &Map<String, Value>,
) -> Explained {
    let machine = Machine::new(policy.command.path.clone());
    // Which variables are passed on decides nothing.
    let environment = BTreeMap::new();
    let around = Surroundings {
        programs: &machine,
        directories: &machine,
        environment: &environment,
    };
    let deny = |code: ErrorCode, rule: Rule| {
        let refusal = Refusal::new(code, rule.reason.clone());
        Verdict::Deny(Denial { refusal, rule })
    };
    let (verdict, took_part) = match (policy.tools.sees(context, kind.name()), request::read(kind, arguments)) {
        (Err(rule), _) => (
            deny(ErrorCode::UnknownTool, rule),
            tool::took_part(policy, context, kind.name()),
        ),
        (Ok(()), Err(refusal)) => {
            let rule = Rule {
                name: "arguments".to_owned(),
                source: policy.sources.last().cloned().unwrap_or_default(),
                reason: refusal.message.clone(),
            };
            (Verdict::Deny(Denial { refusal, rule }), Vec::new())
        }
        (Ok(()), Ok(request)) => (
            decide(policy, context, &request, &around),
            explain::of_command(policy, context, &request, &around),
        ),
    };
    let happens = match &verdict {
        Verdict::Allow(permit) if permit.auto_approved => {
            "it would run at once; the whitelist answers for a person".to_owned()
        }
        Verdict::Allow(_) => "it would run at once, nobody is asked".to_owned(),
        Verdict::Ask(_) => "it would run only after a person approves it".to_owned(),
        Verdict::Deny(denial) => refused(denial.refusal.code),
    };
    Explained {
        verdict: verdict.word(),
        happens,
        rule: verdict.rule().clone(),
        code: match &verdict {
            Verdict::Deny(denial) => Some(denial.refusal.code),
            Verdict::Allow(_) | Verdict::Ask(_) => None,
        },
        plan: verdict.plan().cloned(),
        took_part,
    }
}

pub(super) fn refused(code: ErrorCode) -> String {
    format!("it would be refused with {}", code.name())
}

fn as_json(started: &Started, context: &Context<'_>, explained: &Explained) -> Value {
    let rule = &explained.rule;
    let part = |part: &TookPart| json!({"rule": part.rule, "source": part.source, "effect": part.effect});
    let mut answer = json!({
        "verdict": explained.verdict,
        "rule": rule.name,
        "source": rule.source,
        "sources": started.policy.sources,
        "reason": rule.reason,
        "took_part": explained.took_part.iter().map(part).collect::<Vec<_>>(),
        "keys": context.recorded(),
        "programs": explained.plan.as_ref().map(Plan::program_names).unwrap_or_default(),
        "warnings": started.settings.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    if let Some(code) = explained.code {
        answer["error_code"] = json!(code.name());
    }
    answer
}

fn say(page: &mut Page, started: &Started, context: &Context<'_>, explained: &Explained) -> anyhow::Result<()> {
    let tone = match explained.verdict {
        "allow" => Tone::Good,
        "ask" => Tone::Caution,
        _ => Tone::Bad,
    };
    let short = |rule: &str| shortened(&clean(rule), RULE_CHARS_MAX);
    page.line(format_args!(
        "{}: {}",
        page.paint(tone, explained.verdict),
        explained.happens
    ))?;
    let Rule { name, source, reason } = &explained.rule;
    page.line(format_args!(
        "the rule is {}, from {}: {}",
        short(name),
        clean(source),
        clean(reason)
    ))?;
    if context.is_in_a_run() {
        page.line(caller(context))?;
    }
    if let Some(plan) = &explained.plan {
        page.line(how(plan))?;
        page.line(place(plan))?;
        page.line(reach(plan))?;
    }
    for part in &explained.took_part {
        page.line(format_args!(
            "{} says {}, from {}",
            short(&part.rule),
            clean(&part.effect),
            clean(&part.source)
        ))?;
    }
    for warning in &started.settings.warnings {
        page.line(format_args!(
            "{}: {}",
            page.paint(Tone::Caution, "warning"),
            clean(&warning.to_string())
        ))?;
    }
    Ok(())
}

/// Who would call, as the policies complete it.
fn caller(context: &Context<'_>) -> String {
    let keys = context.recorded();
    let key = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name} `{}`", clean(text)),
        other => format!("{name} {}", clean(&other.to_string())),
    };
    let keys: Vec<_> = keys.as_object().into_iter().flatten().map(key).collect();
    format!("the caller is {}", keys.join(", "))
}

fn how(plan: &Plan) -> String {
    let named: Vec<_> = plan
        .program_names()
        .iter()
        .map(|program| format!("`{}`", clean(program)))
        .collect();
    let named = named.join(", ");
    match &plan.act {
        PlannedAct::Process { .. } => format!("it would run {named} as a process, without a shell"),
        PlannedAct::Tree { .. } => format!("it would run as a line without a shell, with {named}"),
        PlannedAct::Shell { .. } => format!("it needs a shell and would run in {named}"),
    }
}

fn place(plan: &Plan) -> String {
    let cwd = clean(&plan.place.cwd.path.to_string_lossy());
    format!(
        "it would start in `{cwd}` and be ended after {} s",
        plan.timeout.as_secs_f64()
    )
}

fn reach(plan: &Plan) -> String {
    let root = clean(&plan.place.root.to_string_lossy());
    let files = match plan.sandbox {
        SandboxMode::ReadOnly => "it could write no files".to_owned(),
        SandboxMode::WorkspaceWrite => format!("it could write only in `{root}`"),
        SandboxMode::DangerFullAccess => "it could reach everything its user can".to_owned(),
    };
    let network = match plan.network {
        Network::Deny => "not use the network",
        Network::Allow => "use the network",
    };
    format!(
        "{files}, and {network} (sandbox {}, network {})",
        plan.sandbox.as_str(),
        plan.network.as_str()
    )
}
