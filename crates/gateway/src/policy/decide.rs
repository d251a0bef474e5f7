//! The decision: effective policy and request give allow, ask or deny, with the rule and its
//! source. Nothing runs here, so `policy explain` is the same function.
//!
//! The order is fixed: where (working directory), how long, with which variables, which programs
//! (allowlist), and only then whether somebody must be asked (tool matrix, requests for more, mode).

use std::collections::{BTreeMap, BTreeSet};

use super::actor::Context;
use super::allowlist::{FoundProgram, Programs};
use super::effective::{CommandPolicy, EffectivePolicy, Mode, Network, SandboxMode};
use super::line;
use super::matrix;
use super::places::{self, Directories, PlaceRule};
use super::plan::{ExecRights, Plan, PlannedAct};
use super::planning::{self, Reading, Step, Unplanned, named_programs, with_chains};
use super::remembered::Remembered;
use super::talk;
use super::tools::{Ruling, ToolUse};
use super::whitelist::{self, Candidate, Environment, Input, WhitelistRule};
use crate::error::{ErrorCode, Refusal};
use crate::tools::declared::DeclaredTool;
use crate::tools::exec::request::{Act, CommandRequest, CommandTool};

/// What policy looks at besides the request.
pub struct Surroundings<'a> {
    pub programs: &'a dyn Programs,
    pub directories: &'a dyn Directories,
    /// The server's own environment; only names that policy allows are passed on.
    pub environment: &'a BTreeMap<String, String>,
}

/// The rule that decided, and where it came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    pub name: String,
    pub source: String,
    pub reason: String,
}

/// Policy's answer. Ordered by severity in the order of its variants.
#[must_use]
#[derive(Debug)]
pub enum Verdict {
    Allow(Permit),
    Ask(Question),
    Deny(Denial),
}

/// May run as planned.
#[derive(Debug)]
pub struct Permit {
    // INVARIANT: policy allows it as it stands; only this module makes one.
    plan: Box<Plan>,
    pub rule: Rule,
    /// The whitelist answered for a person.
    pub auto_approved: bool,
}

impl Permit {
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn into_plan(self) -> Box<Plan> {
        self.plan
    }
}

/// May run as planned if a person says so.
#[derive(Debug)]
pub struct Question {
    plan: Box<Plan>,
    pub rule: Rule,
}

impl Question {
    pub(super) fn new(plan: Plan, rule: Rule) -> Self {
        Self {
            plan: Box::new(plan),
            rule,
        }
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn into_plan(self) -> Box<Plan> {
        self.plan
    }
}

/// May not run.
#[derive(Debug)]
pub struct Denial {
    pub refusal: Refusal,
    pub rule: Rule,
}

impl Verdict {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Allow(_) => "allow",
            Self::Ask(_) => "ask",
            Self::Deny(_) => "deny",
        }
    }

    pub fn rule(&self) -> &Rule {
        match self {
            Self::Allow(permit) => &permit.rule,
            Self::Ask(question) => &question.rule,
            Self::Deny(denial) => &denial.rule,
        }
    }

    pub fn plan(&self) -> Option<&Plan> {
        match self {
            Self::Allow(permit) => Some(&permit.plan),
            Self::Ask(question) => Some(&question.plan),
            Self::Deny(_) => None,
        }
    }
}

/// Decides one command request.
pub fn decide(
    policy: &EffectivePolicy,
    context: &Context<'_>,
    request: &CommandRequest,
    around: &Surroundings<'_>,
) -> Verdict {
    let programs = Remembered::new(around.programs, &policy.command);
    let around = &Surroundings {
        programs: &programs,
        ..*around
    };
    let stilled = context.is_talk().then(|| talk::stilled(policy));
    let policy = stilled.as_ref().unwrap_or(policy);
    match planning::plan(policy, request, around) {
        Ok((plan, reading)) => {
            let used = ToolUse::of(request.tool.name());
            let ruling = policy.tools.ruling(context, &used);
            let objection = stilled.is_some().then(|| talk::objection(&plan, &reading)).flatten();
            if let (Ruling::Allow | Ruling::Ask(_), Some(why)) = (&ruling, objection) {
                return deny(talk::rule("discussions change nothing"), why);
            }
            if let CommandTool::Declared(tool) = &request.tool {
                return judge_declared(ruling, tool, plan);
            }
            let verdict = judge(policy, ruling, request, plan, &reading, around.programs);
            match &verdict {
                Verdict::Ask(question) => match planning::nothing_to_run(question.plan()) {
                    Some(unplanned) => refused(policy, unplanned),
                    None => verdict,
                },
                Verdict::Allow(_) | Verdict::Deny(_) => verdict,
            }
        }
        Err(unplanned) => refused(policy, unplanned),
    }
}

fn refused(policy: &EffectivePolicy, unplanned: Unplanned) -> Verdict {
    let rule = refusing(policy, &unplanned);
    let refusal = unplanned.refusal;
    Verdict::Deny(Denial { refusal, rule })
}

/// The rule behind a request that cannot even be planned.
pub(super) fn refusing(policy: &EffectivePolicy, unplanned: &Unplanned) -> Rule {
    let sources = &policy.rule_sources;
    let (name, source) = match unplanned.by {
        Step::Place(PlaceRule::Workspace) => ("workspace", sources.workspace.as_str()),
        Step::Place(PlaceRule::Roots) => ("allowed working directories", sources.cwd_roots.as_str()),
        Step::Place(PlaceRule::Hidden) => ("hidden places", matrix::SOURCE),
        Step::Place(PlaceRule::Steering) => ("what steers others", matrix::SOURCE),
        Step::Place(PlaceRule::Boundless) => ("what cannot be confined", matrix::SOURCE),
        Step::Timeout => ("timeout_seconds_max", sources.timeout.as_str()),
        Step::Variables => ("guarded variables", matrix::SOURCE),
        Step::Programs => ("allowlist", sources.allowlist.as_str()),
    };
    rule(name, source, &unplanned.refusal.message)
}

/// What it wants that policy does not give.
fn more_than_given(command: &CommandPolicy, plan: &Plan) -> String {
    let sandbox = (plan.sandbox > command.sandbox).then(|| {
        format!(
            "sandbox `{}` instead of `{}`",
            plan.sandbox.as_str(),
            command.sandbox.as_str()
        )
    });
    let network = (plan.network > command.network).then(|| {
        format!(
            "network `{}` instead of `{}`",
            plan.network.as_str(),
            command.network.as_str()
        )
    });
    let wanted: Vec<String> = sandbox.into_iter().chain(network).collect();
    format!("asks for {}", wanted.join(" and "))
}

/// Allow, ask or deny a plan that is possible: the strictest of what the tool's ruling and the mode
/// say. The ruling asks in every mode; only what both let pass runs unasked.
fn judge(
    policy: &EffectivePolicy,
    ruling: Ruling,
    request: &CommandRequest,
    plan: Plan,
    reading: &Reading,
    programs: &dyn Programs,
) -> Verdict {
    let command = &policy.command;
    let mode_source = policy.rule_sources.mode.as_str();
    let ask = |plan: Plan, rule: Rule| Verdict::Ask(Question::new(plan, rule));
    let wants_more = plan.sandbox > command.sandbox || plan.network > command.network;
    match (ruling, policy.approval.mode, wants_more) {
        (Ruling::Deny(rule), _, _) => denied_by(rule),
        (Ruling::Absent(rule), _, _) => absent_by(rule),
        (Ruling::Allow | Ruling::Ask(_), Mode::Never, true) => {
            let message = format!(
                "this asks for more than policy gives (sandbox `{}`, network `{}`), and nobody is ever asked here; \
                 run it without",
                command.sandbox.as_str(),
                command.network.as_str()
            );
            deny(rule("mode never", mode_source, "never asks"), message)
        }
        (Ruling::Ask(rule), _, _) => ask(plan, rule),
        (Ruling::Allow, Mode::Untrusted | Mode::OnRequest | Mode::OnFailure, true) => {
            let reason = more_than_given(command, &plan);
            ask(plan, rule("request for more", mode_source, &reason))
        }
        (Ruling::Allow, Mode::Never | Mode::OnRequest | Mode::OnFailure, false) => {
            let name = format!("mode {}", policy.approval.mode.as_str());
            let rule = rule(&name, mode_source, "allowed commands run confined");
            Verdict::Allow(Permit {
                plan: Box::new(plan),
                rule,
                auto_approved: false,
            })
        }
        (Ruling::Allow, Mode::Untrusted, false) => match covering(policy, request, reading, &plan.act) {
            // There the loader could run what the command may not start.
            Some(_) if places::is_among_programs(&plan.place.root) => {
                let reason = "the machine's programs are where it works, so that it cannot be held to its own";
                ask(plan, rule("mode untrusted", mode_source, reason))
            }
            Some(Covered { rules, reach }) => {
                let plan = narrowed(plan, reach, programs);
                Verdict::Allow(Permit {
                    plan: Box::new(plan),
                    rule: answered_by(&rules),
                    auto_approved: true,
                })
            }
            None => ask(
                plan,
                rule(
                    "mode untrusted",
                    mode_source,
                    "no whitelist rule covers every command of it",
                ),
            ),
        },
    }
}

/// A declared tool is judged by what its file and the layers say of it. The file is the operator's leave
/// for this program, its reach and its network, so neither mode nor whitelist has a say.
fn judge_declared(ruling: Ruling, tool: &DeclaredTool, plan: Plan) -> Verdict {
    match ruling {
        Ruling::Deny(rule) => denied_by(rule),
        Ruling::Absent(rule) => absent_by(rule),
        Ruling::Ask(rule) => Verdict::Ask(Question::new(plan, rule)),
        Ruling::Allow => Verdict::Allow(Permit {
            plan: Box::new(plan),
            rule: rule(
                "tool file",
                &tool.source,
                "the file that declares the tool lets it run unasked",
            ),
            auto_approved: false,
        }),
    }
}

/// What the whitelist said for a person.
pub(super) struct Covered<'p> {
    /// The rule for each command of the line.
    // INVARIANT: not empty.
    pub(super) rules: Vec<&'p WhitelistRule>,
    reach: Reach,
}

/// How far a covered command gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Only built-in rules answered, which promise reading: what they missed writes nothing and reaches nobody either.
    Reading,
    /// A configured pattern answered; whoever wrote it may have meant a command that writes.
    AsPolicySays,
}

/// A command that the whitelist answered for may start only the programs it names, and git only as
/// the workspace has not configured it.
fn narrowed(mut plan: Plan, reach: Reach, programs: &dyn Programs) -> Plan {
    let mut named = named_programs(&plan.act);
    let started: Vec<_> = named
        .iter()
        .flat_map(|program| whitelist::started_by(&program.path))
        .collect();
    named.extend(started.iter().filter_map(|name| programs.find(name)));
    plan.exec = ExecRights::Only {
        programs: with_chains(&named),
        workspace: false,
    };
    plan.neutral_git = true;
    match reach {
        Reach::Reading => {
            plan.sandbox = plan.sandbox.min(SandboxMode::ReadOnly);
            // Git fetches objects that a partial clone lacks, from wherever the repository says.
            plan.network = Network::Deny;
        }
        Reach::AsPolicySays => {}
    }
    plan
}

pub(super) fn covering<'p>(
    policy: &'p EffectivePolicy,
    request: &CommandRequest,
    reading: &Reading,
    act: &PlannedAct,
) -> Option<Covered<'p>> {
    let rules = &policy.approval.whitelist;
    let command = reading.asked()?;
    let environment = if request.env.is_empty() {
        Environment::Built
    } else {
        Environment::GivenByCall
    };
    let input = match request.input {
        None if !request.is_fed => Input::Absent,
        Some(_) | None => Input::Given,
    };
    let candidate = Candidate {
        command,
        environment,
        input,
    };
    let matched = whitelist::covers(rules, candidate)?;
    let matched: Vec<_> = matched.into_iter().map(|index| &rules[index]).collect();
    if lends_more_than_it_reads(&programs_by_command(act)?, &matched) {
        return None;
    }
    let reach = if matched.iter().all(|rule| rule.source == whitelist::Source::BuiltIn) {
        Reach::Reading
    } else {
        Reach::AsPolicySays
    };
    // What a pattern lets go was meant for where the call works, and only that was held against policy.
    if reach == Reach::AsPolicySays && matched.iter().any(|rule| rule.moves()) {
        return None;
    }
    (!matched.is_empty()).then_some(Covered { rules: matched, reach })
}

/// The first rule, with the reasons of all.
fn answered_by(rules: &[&WhitelistRule]) -> Rule {
    let reasons: BTreeSet<&str> = rules.iter().map(|rule| rule.reason.as_str()).collect();
    let (name, source) = rules.first().map_or_else(Default::default, |first| {
        (format!("whitelist `{}`", first.explained()), first.origin.clone())
    });
    Rule {
        name,
        source,
        reason: reasons.into_iter().collect::<Vec<_>>().join("; "),
    }
}

/// The right to start programs belongs to the whole line, and git and much of what patterns cover start what they find
/// configured, with other words. Beside such a program stands none that does more than read: no script (on many systems
/// `which` is one), which would lend its shell, and nothing that was let go by a pattern or in one form, which was for its own words:
/// `python3 --version` would lend the interpreter.
fn lends_more_than_it_reads(programs: &[Option<&FoundProgram>], rules: &[&WhitelistRule]) -> bool {
    let commands = || {
        programs
            .iter()
            .zip(rules)
            .filter_map(|(program, rule)| Some(((*program)?, rule)))
    };
    commands()
        .filter(|(_, rule)| !rule.starts_nothing())
        .any(|(starter, _)| {
            commands().any(|(program, rule)| {
                let goes_further = program.is_script || rule.source != whitelist::Source::BuiltIn || rule.is_closed();
                program.path != starter.path && goes_further
            })
        })
}

/// The program of each command, in the order of the line. None for a line that needs bash: what is covered may start
/// only the programs it names, and that would be bash alone.
fn programs_by_command(act: &PlannedAct) -> Option<Vec<Option<&FoundProgram>>> {
    match act {
        PlannedAct::Process { program, .. } => Some(vec![Some(program)]),
        PlannedAct::Tree { programs, .. } => Some(programs.iter().map(Option::as_ref).collect()),
        PlannedAct::Shell { .. } => None,
    }
}

fn denied_by(rule: Rule) -> Verdict {
    let message = rule.reason.clone();
    deny(rule, message)
}

/// The tool does not exist for this caller, and is answered so.
fn absent_by(rule: Rule) -> Verdict {
    Verdict::Deny(Denial {
        refusal: Refusal::new(ErrorCode::UnknownTool, rule.reason.clone()),
        rule,
    })
}

fn deny(rule: Rule, message: String) -> Verdict {
    Verdict::Deny(Denial {
        refusal: Refusal::new(ErrorCode::PolicyDenied, message),
        rule,
    })
}

fn rule(name: &str, source: &str, reason: &str) -> Rule {
    Rule {
        name: name.to_owned(),
        source: source.to_owned(),
        reason: reason.to_owned(),
    }
}

/// The words that will run, as a person reads them.
pub(crate) fn spoken(act: &Act) -> String {
    match act {
        Act::Line(line) => line.clone(),
        Act::Argv { file, args } => line::canonical_argv(file, args),
    }
}
