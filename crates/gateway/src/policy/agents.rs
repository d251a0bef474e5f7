//! What policy says when an agent of ours asks before it acts.
//!
//! An agent's command is the same act as a call to `execute_command`, so the same decision is taken of it,
//! under the mode and the rules of its job. What an agent asks *beyond* its confinement is different: no
//! rule of the whitelist covers that, since those promise something about confined commands.

use std::time::Duration;

use super::actor::Context;
use super::decide::{self, Rule, Surroundings, Verdict};
use super::effective::{EffectivePolicy, Mode};
use super::line::{self, Limits, Shape};
use super::talk;
use super::whitelist::{TaskHand, with_task};
use crate::job::driver::{AgentQuestion, QuestionAbout};
use crate::job::input::TaskApproval;
use crate::tools::exec::request::{Act, CommandRequest, CommandTool};

/// Policy's answer to an agent.
#[must_use]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Judgement {
    Allow(Rule),
    Ask(Rule),
    Deny(Rule),
}

impl Judgement {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Allow(_) => "allow",
            Self::Ask(_) => "ask",
            Self::Deny(_) => "deny",
        }
    }
}

/// The answer with what a question would need.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Judged {
    pub judgement: Judgement,
    pub policy_digest: String,
    pub quorum: u32,
    /// How long a question may wait; none for ever.
    pub timeout: Option<Duration>,
}

/// The policy in force for a job that brought its own approval policy. Its rules were held against who
/// started it when it was.
pub fn for_task(policy: &EffectivePolicy, task: Option<&TaskApproval>) -> EffectivePolicy {
    let mut policy = policy.clone();
    let Some(task) = task else {
        return policy;
    };
    if let Some(mode) = task.mode {
        policy.approval.mode = mode;
        "the job".clone_into(&mut policy.rule_sources.mode);
    }
    if let Ok(with) = with_task(&policy.approval.whitelist, &task.rules(), TaskHand::Sets) {
        policy.approval.whitelist = with.rules;
    }
    policy.approval.timeout = match (policy.approval.timeout, task.timeout_ms.map(Duration::from_millis)) {
        (Some(ours), Some(tasks)) => Some(ours.min(tasks)),
        (ours, tasks) => ours.or(tasks),
    };
    policy
}

/// Answers an agent under the policy of its job.
///
/// `has_failed`: the same command failed before in this job, which is what mode `on-failure` waits for.
pub fn judge(
    policy: &EffectivePolicy,
    context: &Context<'_>,
    question: &AgentQuestion,
    has_failed: bool,
    around: &Surroundings<'_>,
) -> Judgement {
    let mode = policy.approval.mode;
    let rule = |reason: &str| Rule {
        name: format!("mode {}", mode.as_str()),
        source: policy.rule_sources.mode.clone(),
        reason: reason.to_owned(),
    };
    if context.is_talk()
        && let Some(why) = unfit_for_talk(question)
    {
        return Judgement::Deny(talk::rule(why));
    }
    match (&question.about, question.wants_more, mode) {
        (
            QuestionAbout::Command { .. } | QuestionAbout::Patch { .. } | QuestionAbout::Tool { .. },
            true,
            Mode::Never,
        ) => Judgement::Deny(rule(
            "this asks for more than the job's sandbox gives, and nobody is ever asked here",
        )),
        (QuestionAbout::Command { .. }, true, Mode::OnFailure) if !has_failed => Judgement::Deny(rule(
            "run it within the sandbox first; if that fails because of the sandbox, ask again",
        )),
        (
            QuestionAbout::Command { .. } | QuestionAbout::Patch { .. } | QuestionAbout::Tool { .. },
            true,
            Mode::Untrusted | Mode::OnRequest | Mode::OnFailure,
        ) => Judgement::Ask(rule("it asks for more than the job's sandbox gives")),
        (QuestionAbout::Command { command, cwd }, false, _) => {
            let mut request = CommandRequest::of_program("");
            request.tool = CommandTool::ExecuteCommand;
            request.act = Act::Line(unwrapped(command));
            request.cwd = cwd.as_ref().map(|cwd| cwd.to_string_lossy().into_owned());
            match decide::decide(policy, context, &request, around) {
                Verdict::Allow(permit) => Judgement::Allow(permit.rule),
                Verdict::Ask(question) => Judgement::Ask(question.rule),
                Verdict::Deny(denial) => Judgement::Deny(Rule {
                    reason: denial.refusal.message,
                    ..denial.rule
                }),
            }
        }
        (QuestionAbout::Patch { grant_root: true, .. }, false, Mode::Never) => {
            Judgement::Deny(rule("it asks for a whole directory, and nobody is ever asked here"))
        }
        (QuestionAbout::Patch { grant_root: true, .. }, false, _) => {
            Judgement::Ask(rule("it asks for a whole directory, not for these files alone"))
        }
        (QuestionAbout::Patch { .. }, false, Mode::Untrusted) => {
            Judgement::Ask(rule("changes of files are shown to a person"))
        }
        (QuestionAbout::Patch { .. }, false, Mode::Never | Mode::OnRequest | Mode::OnFailure) => {
            Judgement::Allow(rule("files may be changed within the job's sandbox"))
        }
        (QuestionAbout::Tool { name, .. }, false, Mode::Never) => Judgement::Deny(rule(&format!(
            "no rule allows the agent's tool `{name}`, and nobody is ever asked here"
        ))),
        (QuestionAbout::Tool { name, .. }, false, Mode::Untrusted | Mode::OnRequest | Mode::OnFailure) => {
            Judgement::Ask(rule(&format!("no rule allows the agent's tool `{name}`")))
        }
    }
}

/// Why an agent that only talks does not even ask.
fn unfit_for_talk(question: &AgentQuestion) -> Option<&'static str> {
    match &question.about {
        QuestionAbout::Patch { .. } => {
            Some("this run is a discussion: no file is changed; say what you would change instead")
        }
        QuestionAbout::Command { .. } | QuestionAbout::Tool { .. } if question.wants_more => {
            Some("this run is a discussion: it gets no more than its sandbox gives")
        }
        QuestionAbout::Command { .. } | QuestionAbout::Tool { .. } => None,
    }
}

/// The line that an agent hands to a shell, where it does nothing but that: `bash -lc 'git status'`.
fn unwrapped(command: &str) -> String {
    let inner = || {
        let line = line::read(command, Limits::STANDARD).ok()?;
        let Shape::Plain(tree) = &line.shape else {
            return None;
        };
        let mut commands = tree.commands();
        let (only, None) = (commands.next()?, commands.next()) else {
            return None;
        };
        let [option, text] = only.args.as_slice() else {
            return None;
        };
        let text = text.literal()?;
        let is_read_so = match only.name.as_str() {
            "bash" | "/bin/bash" | "/usr/bin/bash" => true,
            "sh" | "/bin/sh" | "/usr/bin/sh" => every_shell_reads_it_so(&text),
            _ => false,
        };
        // A text that begins like an option is one to the shell.
        let runs_text = matches!(option.literal()?.as_str(), "-c" | "-lc") && !text.starts_with(['-', '+']);
        (is_read_so && runs_text && only.redirections.is_empty()).then_some(text)
    };
    inner().unwrap_or_else(|| command.to_owned())
}

/// Which shell `sh` is differs from machine to machine. Others than bash have no `[[` and no `$'…'`, and run as
/// commands what stands in there; the plain rest means the same everywhere.
fn every_shell_reads_it_so(text: &str) -> bool {
    let is_plain = |line: line::Line| matches!(line.shape, Shape::Plain(_));
    !text.contains('$') && line::read(text, Limits::STANDARD).is_ok_and(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_only_handed_to_a_shell_is_judged_itself() {
        for (command, line) in [
            ("/bin/bash -lc 'git status'", "git status"),
            ("bash -c \"ls -l\"", "ls -l"),
            ("git status", "git status"),
            ("bash -c 'ls' > x", "bash -c 'ls' > x"),
            ("bash -c 'ls' ; rm x", "bash -c 'ls' ; rm x"),
            ("bash -i -c 'ls'", "bash -i -c 'ls'"),
            ("./bash -c ls", "./bash -c ls"),
            ("bash -c $X", "bash -c $X"),
            ("bash -c -s", "bash -c -s"),
            ("sh -c +x", "sh -c +x"),
            ("FOO=1 bash -c ls", "FOO=1 bash -c ls"),
            ("bash -c 'for f in a; do ls; done'", "for f in a; do ls; done"),
            ("/bin/sh -lc 'ls -l | wc'", "ls -l | wc"),
        ] {
            assert_eq!(unwrapped(command), line, "{command}");
        }
    }

    #[test]
    fn what_sh_is_given_counts_only_where_every_shell_reads_it_alike() {
        for command in [
            r#"sh -c "ls \$'\\'; id; #'""#,
            "sh -c '[[ a && id ]]'",
            "/bin/sh -c 'for f in a; do ls; done'",
            "sh -c 'ls {a,b}'",
            "sh -c 'ls ('",
        ] {
            assert_eq!(unwrapped(command), command);
        }
    }
}
