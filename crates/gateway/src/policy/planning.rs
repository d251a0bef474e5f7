//! From a request to the plan of what would run: where, how long, with which variables, which programs.
//! Each step may refuse; nothing here asks whether somebody must be asked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::allowlist::{self, Allowlist, FoundProgram, Programs, Use};
use super::decide::Surroundings;
use super::effective::{EffectivePolicy, ResourceLimits, SandboxMode};
use super::line::tree::{Action, RUNNER_BUILTINS, Redirection, Tree};
use super::line::{self, Line, LineError, Shape};
use super::places::{self, Misplaced, Place, PlaceRule};
use super::plan::{ExecRights, Plan, PlannedAct, RunAs};
use super::sought;
use super::whitelist::Asked;
use crate::error::{ErrorCode, PROGRAM_MISSING, Refusal};
use crate::limits;
use crate::tools::exec::request::{Act, CommandRequest, CommandTool};

/// The request's commands as read, for the whitelist.
pub(super) enum Reading {
    Line(Box<Line>),
    Argv {
        file: String,
        args: Vec<String>,
    },
    /// Left to the shell; no rule covers it.
    Unread,
}

impl Reading {
    /// What rules of the whitelist are held against.
    pub(super) fn asked(&self) -> Option<Asked<'_>> {
        match self {
            Self::Line(line) => Some(Asked::Line(line)),
            Self::Argv { file, args } => Some(Asked::Argv { file, args }),
            Self::Unread => None,
        }
    }
}

/// Entries of a list that a refusal names.
const LISTED_TOLD_MAX: usize = 12;

/// How much of a line is read.
pub(super) const BOUNDS: line::Limits = line::Limits {
    text_bytes_max: limits::LINE_BYTES_MAX,
    ..line::Limits::STANDARD
};

/// Why a request cannot be planned, and what says so.
pub(super) struct Unplanned {
    pub(super) refusal: Refusal,
    pub(super) by: Step,
}

/// What is settled on the way to a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Place(PlaceRule),
    Timeout,
    Variables,
    Programs,
}

impl Step {
    fn refuses(self) -> impl Fn(Refusal) -> Unplanned {
        move |refusal| Unplanned { refusal, by: self }
    }
}

impl From<Misplaced> for Unplanned {
    fn from(misplaced: Misplaced) -> Self {
        Self {
            by: Step::Place(misplaced.by),
            refusal: misplaced.refusal,
        }
    }
}

pub(super) fn plan(
    policy: &EffectivePolicy,
    request: &CommandRequest,
    around: &Surroundings<'_>,
) -> Result<(Plan, Reading), Unplanned> {
    let place = places::settle(&policy.places, request.cwd.as_deref(), around.directories)?;
    places::check_hidden(&place, &policy.places.hidden, around.directories)?;
    let place = place.under(&policy.command.allowlist);
    let sandbox = place.narrow(request.sandbox.unwrap_or(policy.command.sandbox));
    places::check_bounds(&place, sandbox)?;
    if sandbox != SandboxMode::ReadOnly {
        places::check_writable(&place, around.directories)?;
    }
    let timeout = match (&request.tool, request.timeout) {
        // The shorter of what its file and the policy give.
        (CommandTool::Declared(_), Some(declared)) => declared.min(policy.command.timeout_max),
        (_, asked) => settle_timeout(policy, asked).map_err(Step::Timeout.refuses())?,
    };
    let command = &policy.command;
    let env = settle_env(policy, request, around).map_err(Step::Variables.refuses())?;
    let (act, used, reading) = read_act(policy, request, &place, around).map_err(Step::Programs.refuses())?;
    if let Reading::Line(line) = &reading {
        let list = &command.allowlist;
        let given = allowlist::check_given(line, list, &env).map_err(not_allowed(list));
        given.map_err(Step::Programs.refuses())?;
    }
    let exec = exec_rights(policy, &act, &used, around);
    let plan = Plan {
        act,
        place,
        env,
        input: request.input.clone(),
        is_fed: request.is_fed,
        timeout,
        sandbox,
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
        hidden: policy.places.hidden.clone(),
        search_path: command.path.clone(),
    };
    Ok((plan, reading))
}

fn settle_timeout(policy: &EffectivePolicy, asked: Option<Duration>) -> Result<Duration, Refusal> {
    match asked {
        None => Ok(policy.command.timeout),
        Some(asked) if asked <= policy.command.timeout_max => Ok(asked),
        Some(asked) => {
            let max = policy.command.timeout_max;
            let message = format!(
                "a timeout of {} ms is above the maximum of {} ms, which `command_policy.timeout_seconds_max` sets",
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
    let mut guarded = request
        .env
        .iter()
        .filter(|(name, value)| allowlist::is_guarded_value(name, Some(value)));
    if let Some((name, _)) = guarded.next() {
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
            // The file that declares a tool is the leave for its program.
            let list = match &request.tool {
                CommandTool::Declared(_) => &Allowlist::Any,
                CommandTool::ExecuteCommand | CommandTool::ExecuteProcess | CommandTool::RunCommand => list,
            };
            let uses = allowlist::check_argv(file, args, list, around.programs)
                .map_err(not_allowed(list))
                .map_err(|refusal| apart(file, refusal))?;
            let Some(program) = find(file, &place.cwd.path, around.programs) else {
                return Err(apart(file, not_found(file, &policy.command.path)));
            };
            let argv: Vec<String> = std::iter::once(file).chain(args).cloned().collect();
            let reading = Reading::Argv {
                file: file.clone(),
                args: args.clone(),
            };
            Ok((PlannedAct::Process { program, argv }, uses, reading))
        }
        Act::Line(text) => {
            let line = match line::read(text, BOUNDS) {
                Ok(line) => line,
                // Where any program may run, what we cannot read is still bash's to read.
                Err(LineError::Unreadable { .. } | LineError::TooDeep { .. } | LineError::TooMany { .. })
                    if *list == Allowlist::Any =>
                {
                    return Ok((shell(text, Vec::new(), around)?, Vec::new(), Reading::Unread));
                }
                Err(error) => return Err(Refusal::new(ErrorCode::CommandNotAllowed, error.to_string())),
            };
            let uses = allowlist::check_line(&line, list, around.programs).map_err(not_allowed(list))?;
            let act = match &line.shape {
                Shape::Plain(tree) if !may_make_programs(tree, place, around) => match plan_tree(tree, place, around) {
                    Some(act) => act,
                    None => restated(text, &line, list, place, around)?,
                },
                Shape::Plain(_) | Shape::NeedsShell(_) => restated(text, &line, list, place, around)?,
            };
            Ok((act, uses, Reading::Line(Box::new(line))))
        }
    }
}

/// A plain line runs without a shell; a single plain command without even the runner. Some plain ones do need a shell.
fn plan_tree(tree: &Tree, place: &Place, around: &Surroundings<'_>) -> Option<PlannedAct> {
    let commands: Vec<_> = tree.commands().collect();
    let is_builtin = |name: &str| RUNNER_BUILTINS.contains(&name);
    // The runner knows the three standard streams; anything further is a shell's business.
    let beyond = |redirection: &Redirection| {
        redirection.fd > 2
            || matches!(redirection.action, Action::Close)
            || matches!(redirection.action, Action::CopyOf(fd) if fd > 2)
    };
    if commands.iter().any(|command| command.redirections.iter().any(beyond)) {
        return None;
    }
    // After `cd` a relative program name means another file than it does now.
    let moves = commands.iter().any(|command| command.name == "cd");
    if moves
        && commands
            .iter()
            .any(|command| command.name.contains('/') && !command.name.starts_with('/'))
    {
        return None;
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
        return Some(PlannedAct::Process {
            program: program.clone(),
            argv,
        });
    }
    Some(PlannedAct::Tree {
        tree: tree.clone(),
        programs,
    })
}

/// Whether a command of a line is a file that one before it may have made or changed, as in `make && ./test`: it is meant as it
/// is then, and bash looks for it then.
fn may_make_programs(tree: &Tree, place: &Place, around: &Surroundings<'_>) -> bool {
    let first: &[_] = tree.lists.first().map_or(&[], |list| &list.first.commands);
    let is_first = |name: &str| first.iter().any(|first| first.name == name);
    tree.commands().any(|command| {
        let is_trusted = |found: FoundProgram| found.on_trusted_path;
        command.name.contains('/')
            && !is_first(&command.name)
            && !find(&command.name, &place.cwd.path, around.programs).is_some_and(is_trusted)
    })
}

/// Why a line of a single command is nothing to ask a person about: there is no such program. One that runs unasked tells
/// of it as a shell does, and a file may be there by the time of the answer.
pub(super) fn nothing_to_run(plan: &Plan) -> Option<Unplanned> {
    let PlannedAct::Tree { tree, programs } = &plan.act else {
        return None;
    };
    let commands: Vec<_> = tree.commands().collect();
    match (commands.as_slice(), programs.as_slice()) {
        ([command], [None]) if !command.name.contains('/') && !RUNNER_BUILTINS.contains(&command.name.as_str()) => {
            Some(Step::Programs.refuses()(not_found(&command.name, &plan.search_path)))
        }
        _ => None,
    }
}

/// A line for bash. Where there is a list, bash is not given the text but what was read of it, and that is checked as it
/// stands there.
fn restated(
    text: &str,
    line: &Line,
    list: &Allowlist,
    place: &Place,
    around: &Surroundings<'_>,
) -> Result<PlannedAct, Refusal> {
    let named = sought::named(line, &place.cwd.path, around.programs);
    if *list == Allowlist::Any {
        return shell(text, named, around);
    }
    let restated = line::restate(text, BOUNDS).map_err(|unclear| not_allowed(list)(unclear.into()))?;
    // Its places are those of the new text, which nobody has seen.
    let elsewhere = |refusal| allowlist::Refusal {
        position: None,
        ..refusal
    };
    let checked = allowlist::check_line(restated.line(), list, around.programs);
    checked.map_err(elsewhere).map_err(not_allowed(list))?;
    shell(restated.text(), named, around)
}

fn shell(text: &str, named: Vec<String>, around: &Surroundings<'_>) -> Result<PlannedAct, Refusal> {
    match around.programs.find("bash") {
        Some(bash) => Ok(PlannedAct::Shell {
            bash,
            line: text.to_owned(),
            named,
        }),
        None => {
            let message = "this line needs a shell, and there is no bash here; use plain commands, pipes and `&&`";
            Err(Refusal::new(ErrorCode::CommandNotAllowed, message))
        }
    }
}

pub(super) fn find(word: &str, cwd: &Path, programs: &dyn Programs) -> Option<FoundProgram> {
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

pub(super) fn named_programs(act: &PlannedAct) -> Vec<FoundProgram> {
    match act {
        PlannedAct::Process { program, .. } => vec![program.clone()],
        PlannedAct::Tree { programs, .. } => programs.iter().flatten().cloned().collect(),
        PlannedAct::Shell { bash, .. } => vec![bash.clone()],
    }
}

pub(super) fn with_chains(programs: &[FoundProgram]) -> Vec<PathBuf> {
    programs
        .iter()
        .flat_map(|program| std::iter::once(&program.path).chain(&program.interpreter_chain))
        .cloned()
        .collect()
}

fn not_allowed(list: &Allowlist) -> impl Fn(allowlist::Refusal) -> Refusal {
    move |refusal| {
        let instead = match refusal.rule == allowlist::Rule::NotListed {
            true => listed(list),
            false => String::new(),
        };
        Refusal::new(ErrorCode::CommandNotAllowed, format!("{refusal}{instead}"))
    }
}

/// What there is on a list, for whoever named something else.
fn listed(list: &Allowlist) -> String {
    let names = list.names().iter().map(|name| format!("`{name}`"));
    let paths = list.paths().iter().map(|path| format!("`{}`", path.display()));
    let told: Vec<_> = names.chain(paths).collect();
    match told.split_at_checked(LISTED_TOLD_MAX) {
        _ if told.is_empty() => "; nothing is on it".to_owned(),
        Some((first, more)) if !more.is_empty() => format!(
            "; on it are {} and {} more, which the resource `countersign://policy` names",
            first.join(", "),
            more.len()
        ),
        Some(_) | None => format!("; on it: {}", told.join(", ")),
    }
}

/// Tells whoever gave a whole line for the name of a program where the rest of it belongs.
fn apart(file: &str, mut refusal: Refusal) -> Refusal {
    if file.contains(char::is_whitespace) {
        refusal
            .message
            .push_str("; all of this was taken for the name of a program: its arguments go into `args`");
    }
    refusal
}

fn not_found(file: &str, path: &[PathBuf]) -> Refusal {
    let searched: Vec<_> = path.iter().map(|dir| dir.to_string_lossy()).collect();
    let message = if file.contains('/') {
        format!("`{file}` does not exist or is not a program")
    } else {
        format!("no program `{file}` was found in {}", searched.join(":"))
    };
    Refusal::new(ErrorCode::CommandExecutionFailed, message).with(PROGRAM_MISSING, true)
}
