//! "Allow from now on": a whitelist rule made of one question, shown to a person before it is written.
//!
//! The rule matches the one command that was asked about, in canonical form, from its first word to its
//! last. Where such a rule would let more happen than the person saw, or would not help, there is none,
//! and the reason is told: what stands in files may be another thing tomorrow, variables and input are
//! no part of a pattern, and what a shell works out while it runs nobody has seen.

#[cfg(test)]
pub(super) mod tests;

use serde_json::Value;

use super::decide::{self, Surroundings, Verdict};
use super::effective::{EffectivePolicy, SandboxMode};
use super::interpreters;
use super::line::tree::Action;
use super::line::{self, Limits, Line, Shape};
use super::plan::Plan;
use super::planning::named_programs;
use super::whitelist::{self, Asked, RuleText, Source, WhitelistError, WhitelistRule};
use crate::approval::request::{ApprovalRequest, ApprovalType};
use crate::audit::Pending;
use crate::audit::redact::REPLACEMENT;
use crate::error::{ErrorCode, Refusal};
use crate::session::{Caller, Role};
use crate::tools::exec::request::{Act, CommandRequest, CommandTool};

/// The one rule that a whitelist answers for.
const MODE: &str = "mode untrusted";

/// A rule that would have answered the question, and nothing that it need not cover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProposedRule {
    /// As in `approval_policy.whitelist`.
    pub pattern: String,
    pub reason: String,
    /// The lines as they would stand in the file.
    pub yaml: String,
    /// The file that it would be written to.
    pub file: String,
}

/// Port: the operator's configuration, where rules that stand are kept.
pub trait StandingRules: Send + Sync + 'static {
    /// What rule would let the same act go next time. Refused where none can: a line that needs a shell,
    /// a call with variables, more than policy gives.
    fn propose(&self, question: &ApprovalRequest) -> Result<ProposedRule, Refusal>;

    /// Writes the rule and puts it in force here, with an event in the record.
    fn adopt(&self, rule: ProposedRule, by: &Caller) -> Pending<Result<(), Refusal>>;
}

/// What a rule is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exact {
    pub pattern: String,
    /// The command in canonical form.
    pub command: String,
    /// Lines that the rule must not cover, for its own examples.
    pub not_matches: Vec<String>,
    /// What else the person ought to know.
    pub remarks: Vec<String>,
}

/// The rule that would let the command of a question go next time, under this policy.
pub fn exact(
    policy: &EffectivePolicy,
    question: &ApprovalRequest,
    around: &Surroundings<'_>,
) -> Result<Exact, Refusal> {
    asked_by_the_mode(policy, question)?;
    let (request, line) = request_of(question)?;
    let command = only_command(&line)?;
    let asked = match &request.act {
        Act::Line(_) => Asked::Line(&line),
        Act::Argv { file, args } => Asked::Argv { file, args },
    };
    if whitelist::is_cautioned(asked) {
        return Err(none(format!(
            "`{command}` has an option that writes files or runs programs; whoever means that writes the rule by hand"
        )));
    }
    let plan = would_run(policy, &request, &line, around)?;
    for program in named_programs(&plan.act) {
        let name = program.requested.to_string_lossy();
        if interpreters::follows_files(&name) {
            return Err(none(format!(
                "what `{name}` does stands in files, which may say something else tomorrow, and a whitelisted \
                 command may start no other program; it is asked about each time"
            )));
        }
        if program.path.starts_with(&plan.place.root) {
            return Err(none(format!(
                "`{name}` lies where commands may write, so tomorrow it may be another program"
            )));
        }
        if let Some((name, _)) = policy.command.helpers.iter().find(|(name, _)| {
            let found = around.programs.find(name);
            found.is_some_and(|found| found.path == program.path)
        }) {
            return Err(none(format!(
                "`{name}` needs its `helpers`, and a whitelisted command may start no program but itself"
            )));
        }
    }
    let pattern = whitelist::exactly(&command);
    let exact = Exact {
        not_matches: vec![format!("{command} more"), format!("{command}; id")],
        remarks: remarks(&plan),
        pattern,
        command,
    };
    holds(policy, &exact, &request, around)?;
    Ok(exact)
}

/// Whether a rule could answer for such questions, as far as the question itself tells.
pub fn may_answer(question: &ApprovalRequest) -> bool {
    question.kind == ApprovalType::ExecCommand && question.quorum <= 1 && detail(question, "rule") == MODE
}

/// A rule of the whitelist answers for the mode only: not for a tool's policy, and not for more than policy
/// gives.
fn asked_by_the_mode(policy: &EffectivePolicy, question: &ApprovalRequest) -> Result<(), Refusal> {
    if question.kind != ApprovalType::ExecCommand {
        return Err(none(format!(
            "a question of type `{}` is decided each time; rules are for commands",
            question.kind.as_str()
        )));
    }
    if question.quorum > 1 {
        return Err(none(format!(
            "{} people must agree each time, and a rule would be the word of one",
            question.quorum
        )));
    }
    match detail(question, "rule") {
        MODE => {}
        "request for more" => {
            return Err(none(
                "it asks for more than policy gives; a rule lets commands run within policy only".to_owned(),
            ));
        }
        rule => {
            return Err(none(format!(
                "the whitelist does not answer for `{rule}` ({})",
                detail(question, "source")
            )));
        }
    }
    if detail(question, "sandbox") != policy.command.sandbox.as_str()
        || detail(question, "network") != policy.command.network.as_str()
    {
        return Err(none(format!(
            "it was to run with sandbox `{}` and network `{}`, and under a rule it would get what policy gives now \
             (`{}`, `{}`)",
            detail(question, "sandbox"),
            detail(question, "network"),
            policy.command.sandbox.as_str(),
            policy.command.network.as_str()
        )));
    }
    if question.details.contains_key("env") {
        return Err(none(
            "a call with variables of its own is always asked about".to_owned(),
        ));
    }
    if question.details.contains_key("input") {
        return Err(none(
            "it brings input, and a rule covers the command without any".to_owned(),
        ));
    }
    Ok(())
}

/// The request as the question tells of it, and its words.
fn request_of(question: &ApprovalRequest) -> Result<(CommandRequest, Line), Refusal> {
    let text = detail(question, "command");
    if text.contains(REPLACEMENT) {
        return Err(none(
            "it holds a secret, which is not kept; a rule cannot be made of what is left".to_owned(),
        ));
    }
    let tool = CommandTool::ALL.into_iter().find(|tool| tool.name() == question.tool);
    let tool = tool.ok_or_else(|| none(format!("tool `{}` runs no commands", question.tool)))?;
    let line =
        line::read(text, Limits::STANDARD).map_err(|error| none(format!("the command cannot be read: {error}")))?;
    let act = match tool {
        CommandTool::ExecuteCommand => Act::Line(text.to_owned()),
        CommandTool::ExecuteProcess | CommandTool::RunCommand | CommandTool::Declared(_) => argv(text, &line)?,
    };
    let request = CommandRequest {
        tool,
        act,
        cwd: Some(detail(question, "cwd").to_owned()),
        ..CommandRequest::of_program("")
    };
    Ok((request, line))
}

/// The program and the arguments that a canonical form was written from.
fn argv(text: &str, line: &Line) -> Result<Act, Refusal> {
    let unread = || none("its words cannot be told apart".to_owned());
    let Shape::Plain(tree) = &line.shape else {
        return Err(unread());
    };
    let mut commands = tree.commands();
    let (Some(command), None) = (commands.next(), commands.next()) else {
        return Err(unread());
    };
    let args: Option<Vec<String>> = command.args.iter().map(|word| word.literal()).collect();
    let args = args.ok_or_else(unread)?;
    let file = command.name.clone();
    if line::canonical_argv(&file, &args) != text || !command.redirections.is_empty() {
        return Err(unread());
    }
    Ok(Act::Argv { file, args })
}

/// The canonical form of a line's one command.
fn only_command(line: &Line) -> Result<String, Refusal> {
    let Shape::Plain(tree) = &line.shape else {
        return Err(none(
            "a shell works out parts of it while it runs, and nobody has seen what".to_owned(),
        ));
    };
    let mut commands = tree.commands();
    let (Some(command), None) = (commands.next(), commands.next()) else {
        return Err(none(
            "it has several commands, and with a rule for each of them each could run by itself; \
             let them be asked for one by one"
                .to_owned(),
        ));
    };
    let quiet = command
        .redirections
        .iter()
        .all(|redirection| match &redirection.action {
            Action::Write(path) | Action::Append(path) => path == "/dev/null",
            Action::CopyOf(_) => true,
            Action::Text(_) | Action::Read(_) | Action::ReadWrite(_) | Action::Close => false,
        });
    if !quiet {
        return Err(none(
            "it reads or writes files by redirection, which no rule covers".to_owned(),
        ));
    }
    Ok(line::canonical(command))
}

/// What was asked about, as it would be planned now.
fn would_run(
    policy: &EffectivePolicy,
    request: &CommandRequest,
    line: &Line,
    around: &Surroundings<'_>,
) -> Result<Plan, Refusal> {
    let context = policy.tools.context(Role::Agent, None);
    match decide::decide(policy, &context, request, around) {
        Verdict::Ask(question) if matches!(line.shape, Shape::Plain(_)) => Ok(question.plan().clone()),
        Verdict::Ask(question) => Err(none(question.rule.reason.clone())),
        Verdict::Allow(permit) => Err(none(format!("policy lets it run already, by {}", permit.rule.name))),
        Verdict::Deny(denial) => Err(none(denial.refusal.message)),
    }
}

/// The proof of the rule: with it the very same request is let go, and by it.
fn holds(
    policy: &EffectivePolicy,
    exact: &Exact,
    request: &CommandRequest,
    around: &Surroundings<'_>,
) -> Result<(), Refusal> {
    let text = RuleText {
        pattern: &exact.pattern,
        reason: "",
        enabled: true,
        source: Source::Global,
        matches: std::slice::from_ref(&exact.command),
        not_matches: &exact.not_matches,
    };
    let rule = WhitelistRule::new(&text).map_err(|error| {
        none(match error {
            WhitelistError::Uncovered { example, .. } => format!(
                "the whitelist never answers for `{example}`: it launches other programs, or a file name in it \
                 could become an option"
            ),
            WhitelistError::Pattern { .. } | WhitelistError::Covered { .. } => error.to_string(),
        })
    })?;
    let mut with = policy.clone();
    with.approval.whitelist.push(rule);
    let context = with.tools.context(Role::Agent, None);
    match decide::decide(&with, &context, request, around) {
        Verdict::Allow(permit) if permit.auto_approved => Ok(()),
        verdict => Err(none(format!(
            "it would still be asked about: {}",
            match &verdict {
                Verdict::Deny(denial) => denial.refusal.message.clone(),
                Verdict::Ask(_) | Verdict::Allow(_) => verdict.rule().reason.clone(),
            }
        ))),
    }
}

fn remarks(plan: &Plan) -> Vec<String> {
    let mut remarks = vec![match plan.sandbox {
        SandboxMode::ReadOnly => "Runs unasked from then on, for every caller, and changes no files.".to_owned(),
        SandboxMode::WorkspaceWrite => {
            "Runs unasked from then on, for every caller, in any directory of the workspace.".to_owned()
        }
        SandboxMode::DangerFullAccess => {
            "Runs unasked from then on, for every caller, WITHOUT CONFINEMENT, as policy says.".to_owned()
        }
    }];
    let names = plan.program_names();
    let is_git = names.iter().any(|name| name.ends_with("/git"));
    remarks.push(format!(
        "It may start no other program{}.",
        if is_git {
            ", and git runs without the workspace's hooks, filters and helpers"
        } else {
            ""
        }
    ));
    remarks.push("With input, also from a pipe or a here-document, it is asked about.".to_owned());
    remarks
}

fn detail<'a>(question: &'a ApprovalRequest, name: &str) -> &'a str {
    question.details.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn none(why: String) -> Refusal {
    Refusal::new(ErrorCode::PolicyDenied, format!("no rule can be made of this: {why}"))
}
