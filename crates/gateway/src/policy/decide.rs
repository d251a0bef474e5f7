//! The decision: effective policy and request give allow, ask or deny, with the rule and its
//! source. Nothing runs here, so `policy explain` is the same function.
//!
//! The order is fixed: where (working directory), how long, with which variables, which programs
//! (allowlist), and only then whether somebody must be asked (tool matrix, requests for more, mode).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::allowlist::{self, Allowlist, FoundProgram, Programs, Use};
use super::effective::{EffectivePolicy, Mode, ResourceLimits, SandboxMode, ToolApproval};
use super::line::tree::{Action, RUNNER_BUILTINS, Redirection, Tree};
use super::line::{self, Line, Shape};
use super::places::{self, Directories, Place};
use super::plan::{ExecRights, Plan, PlannedAct, RunAs};
use super::whitelist::{self, Asked, Candidate, Environment};
use crate::error::{ErrorCode, Refusal};
use crate::limits;
use crate::tools::exec::request::{Act, CommandRequest};

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
    pub(crate) fn into_plan(self) -> Box<Plan> {
        self.plan
    }
}

/// May run as planned if a person says so.
#[derive(Debug)]
pub struct Question {
    plan: Box<Plan>,
    pub rule: Rule,
    /// The words that will run.
    pub command: String,
    pub justification: Option<String>,
}

impl Question {
    pub(super) fn new(plan: Plan, rule: Rule, request: &CommandRequest) -> Self {
        let justification = request.justification.clone();
        Self {
            plan: Box::new(plan),
            rule,
            command: spoken(&request.act),
            justification,
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
pub fn decide(policy: &EffectivePolicy, request: &CommandRequest, around: &Surroundings<'_>) -> Verdict {
    let programs = Remembered {
        programs: around.programs,
        found: RefCell::default(),
    };
    let around = &Surroundings {
        programs: &programs,
        ..*around
    };
    match plan(policy, request, around) {
        Ok((plan, reading)) => judge(policy, request, plan, &reading, around.programs),
        Err(refusal) => {
            let sources = &policy.rule_sources;
            let (name, source) = match refusal.code {
                ErrorCode::CommandNotAllowed | ErrorCode::CommandExecutionFailed => ("allowlist", &sources.allowlist),
                ErrorCode::CwdNotAllowed | ErrorCode::ConfigurationError => {
                    ("allowed working directories", &sources.cwd_roots)
                }
                ErrorCode::CwdNotFound | ErrorCode::WorkspaceIsolationViolation => ("workspace", &sources.workspace),
                ErrorCode::LimitExceeded => ("timeout_seconds_max", &sources.timeout),
                _ => ("guarded variables", &sources.allowlist),
            };
            let rule = rule(name, source, &refusal.message);
            Verdict::Deny(Denial { refusal, rule })
        }
    }
}

/// Programs as they were found when first asked for: within one decision a name means one file.
struct Remembered<'a> {
    programs: &'a dyn Programs,
    found: RefCell<HashMap<String, Option<FoundProgram>>>,
}

impl Programs for Remembered<'_> {
    fn find(&self, word: &str) -> Option<FoundProgram> {
        if let Some(found) = self.found.borrow().get(word) {
            return found.clone();
        }
        let found = self.programs.find(word);
        self.found.borrow_mut().insert(word.to_owned(), found.clone());
        found
    }
}

/// The request's commands as read, for the whitelist.
enum Reading {
    Line(Box<Line>),
    Argv { file: String, args: Vec<String> },
}

fn plan(
    policy: &EffectivePolicy,
    request: &CommandRequest,
    around: &Surroundings<'_>,
) -> Result<(Plan, Reading), Refusal> {
    let place = places::settle(&policy.places, request.cwd.as_deref(), around.directories)?;
    check_hidden(&place, &policy.places.hidden)?;
    let timeout = settle_timeout(policy, request.timeout)?;
    let env = settle_env(policy, request, around)?;
    let (act, used, reading) = read_act(policy, request, &place, around)?;
    let exec = exec_rights(policy, &act, &used, around);
    let command = &policy.command;
    let is_readable = |path: &Path| {
        places::is_within(path, &place.root) || command.read_paths.iter().any(|read| places::is_within(path, read))
    };
    let hidden = policy
        .places
        .hidden
        .iter()
        .filter(|path| is_readable(path))
        .cloned()
        .collect();
    let plan = Plan {
        act,
        place,
        env,
        input: request.input.clone(),
        timeout,
        sandbox: request.sandbox.unwrap_or(command.sandbox),
        network: request.network.unwrap_or(command.network),
        exec,
        neutral_git: false,
        limits: ResourceLimits {
            cpu: command.cpu_limit,
            memory: command.memory_limit,
            pids: command.pids_limit,
        },
        identity: RunAs {
            non_root: command.run_as_non_root,
            user: command.run_as.clone(),
        },
        require: command.require.clone(),
        read_paths: command.read_paths.clone(),
        hidden,
        search_path: command.path.clone(),
    };
    Ok((plan, reading))
}

/// Allow, ask or deny a plan that is possible: the strictest of what the rules say.
fn judge(
    policy: &EffectivePolicy,
    request: &CommandRequest,
    plan: Plan,
    reading: &Reading,
    programs: &dyn Programs,
) -> Verdict {
    let command = &policy.command;
    let mode_source = policy.rule_sources.mode.as_str();
    let ask = |plan: Plan, rule: Rule| Verdict::Ask(Question::new(plan, rule, request));
    match policy.tool_approval(request.tool.name()) {
        Some((ToolApproval::Deny, matched)) => {
            let message = format!("policy denies the tool `{}`", request.tool.name());
            return deny(
                rule(&format!("tools {}", matched.pattern), &matched.source, &message),
                message,
            );
        }
        Some((ToolApproval::Required, matched)) => {
            let reason = format!("the tool `{}` needs approval", request.tool.name());
            return ask(
                plan,
                rule(&format!("tools {}", matched.pattern), &matched.source, &reason),
            );
        }
        Some((ToolApproval::None, _)) | None => {}
    }
    let wants_more = plan.sandbox > command.sandbox || plan.network > command.network;
    match (policy.approval.mode, wants_more) {
        (Mode::Never, true) => {
            let message = format!(
                "this asks for more than policy gives (sandbox `{}`, network `{}`), and nobody is ever asked here; \
                 run it without",
                command.sandbox.as_str(),
                command.network.as_str()
            );
            deny(rule("mode never", mode_source, "never asks"), message)
        }
        (Mode::Untrusted | Mode::OnRequest | Mode::OnFailure, true) => {
            let reason = format!(
                "asks for sandbox `{}`, network `{}`",
                plan.sandbox.as_str(),
                plan.network.as_str()
            );
            ask(plan, rule("request for more", mode_source, &reason))
        }
        (Mode::Never | Mode::OnRequest | Mode::OnFailure, false) => {
            let name = format!("mode {}", policy.approval.mode.as_str());
            let rule = rule(&name, mode_source, "allowed commands run confined");
            Verdict::Allow(Permit {
                plan: Box::new(plan),
                rule,
                auto_approved: false,
            })
        }
        (Mode::Untrusted, false) => match covering(policy, request, reading, &plan.act) {
            Some(Covered { rule, reach }) => {
                let plan = narrowed(plan, reach, programs);
                Verdict::Allow(Permit {
                    plan: Box::new(plan),
                    rule,
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

/// What the whitelist said for a person.
struct Covered {
    rule: Rule,
    reach: Reach,
}

/// How far a covered command gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Only built-in rules answered, which promise reading: an option they missed writes nothing either.
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
    plan.sandbox = match reach {
        Reach::Reading => plan.sandbox.min(SandboxMode::ReadOnly),
        Reach::AsPolicySays => plan.sandbox,
    };
    plan
}

fn covering(
    policy: &EffectivePolicy,
    request: &CommandRequest,
    reading: &Reading,
    act: &PlannedAct,
) -> Option<Covered> {
    let rules = &policy.approval.whitelist;
    let command = match reading {
        Reading::Line(line) => Asked::Line(line),
        Reading::Argv { file, args } => Asked::Argv { file, args },
    };
    let environment = if request.env.is_empty() {
        Environment::Built
    } else {
        Environment::GivenByCall
    };
    let matched = whitelist::covers(rules, Candidate { command, environment })?;
    let matched: Vec<_> = matched.into_iter().map(|index| &rules[index]).collect();
    // The right to start programs belongs to the whole line. Beside a script (on many systems `which`
    // is one) a shell could be started by a program that starts what it finds configured.
    if brings_an_interpreter_to_others(act) && !matched.iter().all(|rule| rule.starts_nothing()) {
        return None;
    }
    let first = matched.first()?;
    let reasons: BTreeSet<&str> = matched.iter().map(|rule| rule.reason.as_str()).collect();
    let rule = Rule {
        name: format!("whitelist `{}`", first.explained()),
        source: first.source.as_str().to_owned(),
        reason: reasons.into_iter().collect::<Vec<_>>().join("; "),
    };
    let reach = if matched.iter().all(|rule| rule.source == whitelist::Source::BuiltIn) {
        Reach::Reading
    } else {
        Reach::AsPolicySays
    };
    Some(Covered { rule, reach })
}

fn brings_an_interpreter_to_others(act: &PlannedAct) -> bool {
    let named = named_programs(act);
    named
        .iter()
        .any(|script| script.is_script && named.iter().any(|other| other.path != script.path))
}

fn check_hidden(place: &Place, hidden: &[PathBuf]) -> Result<(), Refusal> {
    match hidden
        .iter()
        .find(|path| places::is_within(&place.root, path) || places::is_within(&place.cwd.path, path))
    {
        None => Ok(()),
        Some(path) => {
            let message = format!(
                "working directory `{}` is inside `{}`, which commands never see",
                place.cwd.path.display(),
                path.display()
            );
            Err(Refusal::new(ErrorCode::CwdNotAllowed, message))
        }
    }
}

fn settle_timeout(policy: &EffectivePolicy, asked: Option<Duration>) -> Result<Duration, Refusal> {
    match asked {
        None => Ok(policy.command.timeout),
        Some(asked) if asked <= policy.command.timeout_max => Ok(asked),
        Some(asked) => {
            let max = policy.command.timeout_max;
            let message = format!(
                "a timeout of {} ms is above the maximum of {} ms",
                asked.as_millis(),
                max.as_millis()
            );
            Err(Refusal::new(ErrorCode::LimitExceeded, message).with("timeout_ms_max", max.as_millis() as u64))
        }
    }
}

fn settle_env(
    policy: &EffectivePolicy,
    request: &CommandRequest,
    around: &Surroundings<'_>,
) -> Result<Vec<(String, String)>, Refusal> {
    let own = ["HOME", "PATH"];
    if let Some(name) = request
        .env
        .keys()
        .find(|name| own.contains(&name.as_str()) || allowlist::is_guarded_variable(name))
    {
        let message = format!("`env` may not set `{name}`: it changes which programs or libraries run");
        return Err(Refusal::new(ErrorCode::PolicyDenied, message).with("variable", name.as_str()));
    }
    let passed = policy
        .command
        .env_allow
        .iter()
        .filter_map(|name| around.environment.get_key_value(name));
    let mut env: BTreeMap<&String, &String> = passed.collect();
    env.extend(&request.env);
    Ok(env
        .into_iter()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect())
}

/// Reads what is asked for and holds it against the allowlist.
fn read_act(
    policy: &EffectivePolicy,
    request: &CommandRequest,
    place: &Place,
    around: &Surroundings<'_>,
) -> Result<(PlannedAct, Vec<Use>, Reading), Refusal> {
    let list = &policy.command.allowlist;
    match &request.act {
        Act::Argv { file, args } => {
            let uses = allowlist::check_argv(file, args, list, around.programs).map_err(not_allowed)?;
            let Some(program) = find(file, &place.cwd.path, around.programs) else {
                return Err(not_found(file, &policy.command.path));
            };
            let argv: Vec<String> = std::iter::once(file).chain(args).cloned().collect();
            let reading = Reading::Argv {
                file: file.clone(),
                args: args.clone(),
            };
            Ok((PlannedAct::Process { program, argv }, uses, reading))
        }
        Act::Line(text) => {
            let line = line::read(
                text,
                line::Limits {
                    text_bytes_max: limits::LINE_BYTES_MAX,
                    ..line::Limits::STANDARD
                },
            )
            .map_err(|error| Refusal::new(ErrorCode::CommandNotAllowed, error.to_string()))?;
            let uses = allowlist::check_line(&line, list, around.programs).map_err(not_allowed)?;
            let act = match &line.shape {
                Shape::Plain(tree) => plan_tree(tree, text, place, around)?,
                Shape::NeedsShell(_) => shell(text, around)?,
            };
            Ok((act, uses, Reading::Line(Box::new(line))))
        }
    }
}

/// A plain line runs without a shell; a single plain command without even the runner.
fn plan_tree(tree: &Tree, text: &str, place: &Place, around: &Surroundings<'_>) -> Result<PlannedAct, Refusal> {
    let commands: Vec<_> = tree.commands().collect();
    let is_builtin = |name: &str| RUNNER_BUILTINS.contains(&name);
    // The runner knows the three standard streams; anything further is a shell's business.
    let beyond = |redirection: &Redirection| {
        redirection.fd > 2
            || matches!(redirection.action, Action::Close)
            || matches!(redirection.action, Action::CopyOf(fd) if fd > 2)
    };
    if commands.iter().any(|command| command.redirections.iter().any(beyond)) {
        return shell(text, around);
    }
    // After `cd` a relative program name means another file than it does now.
    let moves = commands.iter().any(|command| command.name == "cd");
    if moves
        && commands
            .iter()
            .any(|command| command.name.contains('/') && !command.name.starts_with('/'))
    {
        return shell(text, around);
    }
    let programs: Vec<_> = commands
        .iter()
        .map(|command| {
            if is_builtin(&command.name) {
                None
            } else {
                find(&command.name, &place.cwd.path, around.programs)
            }
        })
        .collect();
    if let ([command], [Some(program)]) = (commands.as_slice(), programs.as_slice())
        && command.redirections.is_empty()
        && let Some(args) = command
            .args
            .iter()
            .map(|word| word.literal())
            .collect::<Option<Vec<_>>>()
    {
        let argv = std::iter::once(command.name.clone()).chain(args).collect();
        return Ok(PlannedAct::Process {
            program: program.clone(),
            argv,
        });
    }
    Ok(PlannedAct::Tree {
        tree: tree.clone(),
        programs,
    })
}

fn shell(text: &str, around: &Surroundings<'_>) -> Result<PlannedAct, Refusal> {
    match around.programs.find("bash") {
        Some(bash) => Ok(PlannedAct::Shell {
            bash,
            line: text.to_owned(),
        }),
        None => {
            let message = "this line needs a shell, and there is no bash here; use plain commands, pipes and `&&`";
            Err(Refusal::new(ErrorCode::CommandNotAllowed, message))
        }
    }
}

fn find(word: &str, cwd: &Path, programs: &dyn Programs) -> Option<FoundProgram> {
    if word.contains('/') && !word.starts_with('/') {
        programs.find(cwd.join(word).to_str()?)
    } else {
        programs.find(word)
    }
}

/// What the kernel lets the command start: everything, or the list with its helpers.
fn exec_rights(policy: &EffectivePolicy, act: &PlannedAct, used: &[Use], around: &Surroundings<'_>) -> ExecRights {
    let list = &policy.command.allowlist;
    if *list == Allowlist::Any {
        return ExecRights::Any;
    }
    let listed: Vec<&str> = list
        .names()
        .iter()
        .map(String::as_str)
        .chain(list.paths().iter().filter_map(|path| path.to_str()))
        .collect();
    let mut programs: Vec<FoundProgram> = listed.iter().filter_map(|entry| around.programs.find(entry)).collect();
    programs.extend(used.iter().map(|used| used.program.clone()));
    if let PlannedAct::Shell { bash, .. } = act {
        programs.push(bash.clone());
    }
    let mut paths = with_chains(&programs);
    let mut workspace = false;
    // A helper comes with the program it helps, not with every call.
    let is_used = |name: &str| {
        around
            .programs
            .find(name)
            .is_some_and(|found| used.iter().any(|it| it.program.path == found.path))
    };
    for (_, helpers) in policy.command.helpers.iter().filter(|(name, _)| is_used(name)) {
        for helper in helpers {
            if helper == "workspace" {
                workspace = true;
            } else if let Some(found) = around.programs.find(helper) {
                paths.extend(with_chains(&[found]));
            } else if helper.starts_with('/') {
                // A directory of helper programs, such as git's own.
                paths.push(PathBuf::from(helper));
            }
        }
    }
    paths.sort();
    paths.dedup();
    ExecRights::Only {
        programs: paths,
        workspace,
    }
}

fn named_programs(act: &PlannedAct) -> Vec<FoundProgram> {
    match act {
        PlannedAct::Process { program, .. } => vec![program.clone()],
        PlannedAct::Tree { programs, .. } => programs.iter().flatten().cloned().collect(),
        PlannedAct::Shell { bash, .. } => vec![bash.clone()],
    }
}

fn with_chains(programs: &[FoundProgram]) -> Vec<PathBuf> {
    programs
        .iter()
        .flat_map(|program| std::iter::once(&program.path).chain(&program.interpreter_chain))
        .cloned()
        .collect()
}

fn not_allowed(refusal: allowlist::Refusal) -> Refusal {
    Refusal::new(ErrorCode::CommandNotAllowed, refusal.to_string())
}

fn not_found(file: &str, path: &[PathBuf]) -> Refusal {
    let searched: Vec<_> = path.iter().map(|dir| dir.to_string_lossy()).collect();
    let message = if file.contains('/') {
        format!("`{file}` does not exist or is not a program")
    } else {
        format!("no program `{file}` was found in {}", searched.join(":"))
    };
    Refusal::new(ErrorCode::CommandExecutionFailed, message)
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

fn spoken(act: &Act) -> String {
    match act {
        Act::Line(line) => line.clone(),
        Act::Argv { file, args } => line::canonical_argv(file, args),
    }
}
