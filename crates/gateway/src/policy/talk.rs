//! A run whose issue carries `mode:discussion` looks and talks. It changes nothing: its commands read only and have no
//! network, whatever policy gives to others, nobody is asked for more, and what would publish something is refused
//! before it starts, with words that say why.

use super::decide::Rule;
use super::effective::{EffectivePolicy, Mode, Network, SandboxMode};
use super::line::Arg;
use super::plan::Plan;
use super::planning::Reading;
use crate::github::vocabulary::DISCUSSION;

/// The policy for somebody who only talks.
pub(super) fn stilled(policy: &EffectivePolicy) -> EffectivePolicy {
    let mut stilled = policy.clone();
    stilled.command.sandbox = stilled.command.sandbox.min(SandboxMode::ReadOnly);
    stilled.command.network = Network::Deny;
    // What its confinement refuses is not offered without it.
    if stilled.approval.mode == Mode::OnFailure {
        stilled.approval.mode = Mode::OnRequest;
    }
    stilled
}

/// Why a plan does not fit a discussion.
pub(super) fn objection(plan: &Plan, reading: &Reading) -> Option<String> {
    if plan.sandbox > SandboxMode::ReadOnly || plan.network > Network::Deny {
        return Some(format!(
            "this run is a discussion (`{DISCUSSION}`): commands read only and have no network; \
             take the label off and set the run off again to have something changed"
        ));
    }
    let published = match reading {
        Reading::Line(line) => line.commands.iter().find_map(|command| {
            let words = command.args.iter().map(known);
            publishes(known(&command.name), words)
        }),
        Reading::Argv { file, args } => publishes(Some(file), args.iter().map(|arg| Some(arg.as_str()))),
        // It reads only and reaches nobody all the same.
        Reading::Unread => None,
    };
    published.map(|what| {
        format!(
            "this run is a discussion (`{DISCUSSION}`): `{what}` is not for it; say what you would do, \
             and take the label off to have it done"
        )
    })
}

/// The rule that this is.
pub(super) fn rule(reason: &str) -> Rule {
    Rule {
        name: DISCUSSION.to_owned(),
        source: "built-in".to_owned(),
        reason: reason.to_owned(),
    }
}

fn known(word: &Arg) -> Option<&str> {
    match word {
        Arg::Static(text) => Some(text),
        Arg::Pattern { .. } | Arg::Computed { .. } | Arg::Number { .. } | Arg::Path { .. } => None,
    }
}

/// What a command would put into a repository or before its readers, by the words that say so. It is a courtesy: what
/// is not found here has nowhere to write and nobody to reach.
fn publishes<'w>(name: Option<&str>, words: impl Iterator<Item = Option<&'w str>>) -> Option<String> {
    let name = name?.rsplit('/').next()?;
    if name != "git" {
        return None;
    }
    let mut words = words.flatten();
    let verb = loop {
        match words.next()? {
            // The value of these is the next word.
            "-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace" => drop(words.next()),
            option if option.starts_with('-') => {}
            verb => break verb,
        }
    };
    ["push", "send-pack", "commit"]
        .contains(&verb)
        .then(|| format!("git {verb}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_publishes_is_known_by_its_words() {
        let said = |line: &str| {
            let mut words = line.split(' ');
            publishes(words.next(), words.map(Some))
        };
        for (line, what) in [
            ("git push", Some("git push")),
            ("/usr/bin/git -C x --no-pager push origin main", Some("git push")),
            ("git commit -m x", Some("git commit")),
            ("git log push", None),
            ("git", None),
            ("ls push", None),
        ] {
            assert_eq!(said(line).as_deref(), what, "{line}");
        }
    }
}
