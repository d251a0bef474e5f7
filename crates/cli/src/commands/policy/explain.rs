//! `policy explain`: the decision that a call would get, from the very function that decides calls.

use std::collections::BTreeMap;

use countersign_exec::Machine;
use countersign_gateway::catalog;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::policy::decide::{Denial, Rule, Surroundings, Verdict, decide};
use countersign_gateway::policy::effective::{EffectivePolicy, Network, SandboxMode};
use countersign_gateway::policy::plan::{Plan, PlannedAct};
use countersign_gateway::session::{Caller, Transport};
use countersign_gateway::tools::exec::request::{self, CommandTool};
use serde_json::{Map, Value, json};

use crate::cli::Explain;
use crate::config::Flags;
use crate::start::{BadUsage, Started};
use crate::terminal::{Page, Tone, clean, shortened};

/// The rule for git alone names every option that it does not cover.
const RULE_CHARS_MAX: usize = 100;

pub(super) fn run(flags: &Flags, asked: &Explain) -> anyhow::Result<()> {
    let tool = tool(&asked.tool)?;
    let arguments = arguments(tool, asked)?;
    let started = Started::load(flags)?;
    let verdict = verdict(&started.policy, tool, &arguments);
    let mut page = Page::stdout();
    if asked.json {
        page.json(&as_json(&started, &verdict))?;
    } else {
        say(&mut page, &started, &verdict)?;
    }
    page.flush()
}

fn tool(name: &str) -> Result<CommandTool, BadUsage> {
    CommandTool::ALL
        .into_iter()
        .find(|tool| tool.name() == name)
        .ok_or_else(|| {
            let known: Vec<_> = CommandTool::ALL
                .iter()
                .map(|tool| format!("`{}`", tool.name()))
                .collect();
            BadUsage(format!(
                "there is no policy on commands for the tool `{name}`; use one of {}",
                known.join(", ")
            ))
        })
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
fn verdict(policy: &EffectivePolicy, tool: CommandTool, arguments: &Map<String, Value>) -> Verdict {
    let source = || policy.sources.last().cloned().unwrap_or_default();
    let deny = |name: &str, refusal: Refusal| {
        let rule = Rule {
            name: name.to_owned(),
            source: source(),
            reason: refusal.message.clone(),
        };
        Verdict::Deny(Denial { refusal, rule })
    };
    let listed = catalog::listed(policy, &Caller::anonymous_agent(Transport::Stdio));
    if !listed.iter().any(|known| known.name == tool.name()) {
        let message = format!("the tool `{}` is disabled, so callers do not find it", tool.name());
        return deny("tools", Refusal::new(ErrorCode::UnknownTool, message));
    }
    let request = match request::read(tool, arguments) {
        Ok(request) => request,
        Err(refusal) => return deny("arguments", refusal),
    };
    let machine = Machine::new(policy.command.path.clone());
    // Which variables are passed on decides nothing.
    let environment = BTreeMap::new();
    decide(
        policy,
        &request,
        &Surroundings {
            programs: &machine,
            directories: &machine,
            environment: &environment,
        },
    )
}

fn as_json(started: &Started, verdict: &Verdict) -> Value {
    let rule = verdict.rule();
    let mut answer = json!({
        "verdict": verdict.word(),
        "rule": rule.name,
        "source": rule.source,
        "sources": started.policy.sources,
        "reason": rule.reason,
        "programs": verdict.plan().map(Plan::program_names).unwrap_or_default(),
        "warnings": started.settings.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    if let Verdict::Deny(denial) = verdict {
        answer["error_code"] = json!(denial.refusal.code.name());
    }
    answer
}

fn say(page: &mut Page, started: &Started, verdict: &Verdict) -> anyhow::Result<()> {
    let (tone, happens) = match verdict {
        Verdict::Allow(permit) if permit.auto_approved => (
            Tone::Good,
            "it would run at once; the whitelist answers for a person".to_owned(),
        ),
        Verdict::Allow(_) => (Tone::Good, "it would run at once, nobody is asked".to_owned()),
        Verdict::Ask(_) => (Tone::Caution, "it would run only after a person approves it".to_owned()),
        Verdict::Deny(denial) => (
            Tone::Bad,
            format!("it would be refused with {}", denial.refusal.code.name()),
        ),
    };
    page.line(format_args!("{}: {happens}", page.paint(tone, verdict.word())))?;
    let Rule { name, source, reason } = verdict.rule();
    let name = shortened(&clean(name), RULE_CHARS_MAX);
    page.line(format_args!(
        "the rule is {name}, from {}: {}",
        clean(source),
        clean(reason)
    ))?;
    if let Some(plan) = verdict.plan() {
        page.line(how(plan))?;
        page.line(place(plan))?;
        page.line(reach(plan))?;
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
