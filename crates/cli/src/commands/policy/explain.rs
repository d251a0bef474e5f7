//! `policy explain`: the decision that a call would get, from the very functions that decide calls.

use std::collections::BTreeMap;

use countersign_exec::Machine;
use countersign_gateway::policy::actor::RunContext;
use countersign_gateway::policy::decide::{Rule, Surroundings};
use countersign_gateway::policy::effective::{Network, SandboxMode};
use countersign_gateway::policy::explain::{self, Explained, Supposed};
use countersign_gateway::policy::plan::{Plan, PlannedAct};
use countersign_gateway::session::Role;
use countersign_gateway::tools::exec::request::CommandTool;
use serde_json::{Map, Value, json};

use super::tool;
use crate::cli::{Explain, ExplainRole};
use crate::config::Flags;
use crate::start::{self, BadUsage, Started};
use crate::terminal::{Page, Tone, clean, shortened};

/// The rule for git alone names every option that it does not cover.
const RULE_CHARS_MAX: usize = 100;

pub(super) fn run(flags: &Flags, asked: &Explain) -> anyhow::Result<()> {
    let kind = CommandTool::ALL.into_iter().find(|tool| tool.name() == asked.tool);
    let arguments = kind.map(|kind| arguments(kind, asked)).transpose()?;
    let started = Started::load(flags)?;
    let policy = &started.policy;
    let arguments = match arguments {
        Some(arguments) => arguments,
        // What an unknown tool takes is unknown as well.
        None if policy.tools.knows(&asked.tool) => {
            let declared = policy.tools.declared().find(&asked.tool);
            tool::arguments(&asked.argv, declared.map(|tool| tool.input.written()))?
        }
        None => Map::new(),
    };
    let call = Supposed {
        tool: asked.tool.clone(),
        arguments,
        role: match asked.role {
            ExplainRole::Agent => Role::Agent,
            ExplainRole::Operator => Role::Operator,
        },
        run: run_context(asked),
    };
    let machine = Machine::new(policy.command.path.clone());
    // Which variables are passed on decides nothing.
    let environment = BTreeMap::new();
    let around = Surroundings {
        programs: &machine,
        directories: &machine,
        environment: &environment,
    };
    let explained = explain::explain(policy, &call, &around);
    let mut page = Page::stdout();
    if asked.json {
        let mut answer = explained.to_json();
        answer["warnings"] = start::warnings(&started).collect();
        page.json(&answer)?;
    } else {
        say(&mut page, &started, &explained)?;
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
    match &tool {
        CommandTool::ExecuteCommand if !rest.is_empty() => {
            let message = format!(
                "`execute_command` takes the whole line as one argument, not {}; quote it",
                asked.argv.len()
            );
            return Err(BadUsage(message));
        }
        CommandTool::ExecuteCommand => set("command", json!(first)),
        CommandTool::ExecuteProcess | CommandTool::Declared(_) => {
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

fn say(page: &mut Page, started: &Started, explained: &Explained) -> anyhow::Result<()> {
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
    if explained.is_in_a_run {
        page.line(caller(&explained.keys))?;
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
    for warning in start::warnings(started) {
        page.line(format_args!(
            "{}: {}",
            page.paint(Tone::Caution, "warning"),
            clean(&warning.to_string())
        ))?;
    }
    Ok(())
}

/// Who would call, as the policies complete it.
fn caller(keys: &Value) -> String {
    let quoted = |value: &Value| format!("`{}`", clean(value.as_str().unwrap_or(&value.to_string())));
    let key = |(name, value): (&String, &Value)| match value {
        Value::Array(items) => format!("{name} {}", items.iter().map(quoted).collect::<Vec<_>>().join(" and ")),
        other => format!("{name} {}", quoted(other)),
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
    match &plan.act {
        PlannedAct::Process { .. } => format!("it would run {} as a process, without a shell", named.join(", ")),
        PlannedAct::Tree { .. } => format!("it would run as a line without a shell, with {}", named.join(", ")),
        PlannedAct::Shell { .. } => match named.split_first() {
            Some((shell, [])) => format!("it needs a shell and would run in {shell}"),
            Some((shell, rest)) => format!("it needs a shell and would run in {shell}, with {}", rest.join(", ")),
            None => "it needs a shell".to_owned(),
        },
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
        SandboxMode::ReadOnly => match (plan.place.why_narrow(), plan.place.opened_root(plan.sandbox)) {
            (None, _) => "it could write no files".to_owned(),
            (Some((why, _)), Some(_)) => format!("it could write no files, since it works in `{root}`, which {why}"),
            (Some((why, _)), None) => {
                format!("it could neither read nor write files there, since it works in `{root}`, which {why}")
            }
        },
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
