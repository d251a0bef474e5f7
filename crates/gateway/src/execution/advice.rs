//! Advice about commands that failed, given only where they complain of what their confinement may have kept from them: a
//! workspace that they cannot write, the network, programs beside those of the list. A guess, and worded as one.

use std::path::{Path, PathBuf};

use crate::policy::again;
use crate::policy::effective::{Layer, SandboxMode};
use crate::policy::plan::Plan;

const NO_NETWORK: &str = "commands have no network, since `command_policy.network` is `deny`; `execute_command` and \
                          `execute_process` ask for it with `network: allow`";
const NO_SHARED_TEMPORARY: &str = "commands have a temporary directory of their own, which `TMPDIR` names and `mktemp` uses, and not \
                                   `/tmp`";
const NOT_LISTED: &str = "if it was a program that it could not start: the kernel runs only what the allowlist, or the rule of the \
                          whitelist, names, and what `command_policy.helpers` adds to that, such as `helpers: {make: [gcc]}`";

/// What to do about a command that failed with this status and said this on standard error.
pub(super) fn on_failure(
    plan: &Plan,
    status: i32,
    said: &str,
    layers: &[Layer],
    workspace: Option<Advice>,
) -> Option<String> {
    let is_listed = layers.contains(&Layer::ExecList);
    if is_listed && says_not_started(said) {
        return Some(NOT_LISTED.to_owned());
    }
    if said.contains(DENIED)
        && let Some(advice) = on_unreadable(plan)
    {
        return Some(advice);
    }
    if let Some(advice) = workspace.filter(|advice| advice.fits(said)) {
        return Some(advice.text);
    }
    let is_kept = |advice: &Advice| advice.fits(said) || advice.is_about(said, READ_ONLY);
    if let Some(advice) = on_no_root(plan).filter(is_kept) {
        return Some(advice.text);
    }
    if plan.sandbox != SandboxMode::DangerFullAccess && said.lines().any(|line| denies_temporary(plan, line)) {
        return Some(NO_SHARED_TEMPORARY.to_owned());
    }
    if again::lacks_network(plan, status, &said.to_lowercase()) {
        return Some(NO_NETWORK.to_owned());
    }
    (is_listed && said.lines().any(|line| denies_program(plan, line))).then(|| NOT_LISTED.to_owned())
}

/// Whether what a line says to be denied lies in the directory that all users of a machine share, and in no root.
fn denies_temporary(plan: &Plan, line: &str) -> bool {
    let Some((before, _)) = line.split_once(DENIED) else {
        return false;
    };
    let mut words = before.split(|c: char| c.is_whitespace() || "'`\"‘’:".contains(c));
    words.any(|word| word.starts_with("/tmp/") && !plan.reads(Path::new(word)))
}

/// What to do about a program that commands may not read.
pub fn on_unreadable(plan: &Plan) -> Option<String> {
    let file = plan.out_of_reach()?;
    let directory = file.parent().unwrap_or(file).display();
    Some(format!(
        "commands cannot read `{directory}`, where it lies; add that to `command_policy.read_paths`"
    ))
}

/// What to do about a directory that lies in no root.
fn on_no_root(plan: &Plan) -> Option<Advice> {
    let place = &plan.place;
    let could_not = match place.opened_root(plan.sandbox) {
        Some(_) => "write nothing",
        None => "write nothing and read nothing of its own",
    };
    let (why, remedy) = place.why_narrow().filter(|_| plan.sandbox == SandboxMode::ReadOnly)?;
    Some(Advice {
        text: format!(
            "the command worked in `{}`, which {why}, and so could {could_not} there; {remedy}",
            place.cwd.path.display()
        ),
        root: place.root.clone(),
    })
}

/// Whether something says in so many words that it could not start a program.
fn says_not_started(said: &str) -> bool {
    const SIGNS: [&str; 4] = [
        "cannot exec",
        "could not execute process",
        "unable to execute",
        "execvp",
    ];
    let said = said.to_lowercase();
    said.contains(&DENIED.to_lowercase()) && SIGNS.iter().any(|sign| said.contains(sign))
}

/// Whether what a line says to be denied may be a program: a name alone, or a file where programs are.
fn denies_program(plan: &Plan, line: &str) -> bool {
    let Some((before, _)) = line.split_once(DENIED) else {
        return false;
    };
    let denied = before.trim_end_matches([':', ' ', '(']);
    let denied = denied.rsplit(": ").next().unwrap_or(denied);
    let is_program = |path: &Path| {
        let mut places = plan.search_path.iter().map(PathBuf::as_path);
        places.any(|place| path.starts_with(place))
            || path.starts_with("/usr/lib")
            || path.starts_with("/usr/libexec")
            || path.starts_with(&plan.place.root)
    };
    let is_word = !denied.is_empty() && !denied.contains(char::is_whitespace);
    is_word && (!denied.starts_with('/') || is_program(Path::new(denied)))
}

/// What to do about a workspace that is not writable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advice {
    pub text: String,
    /// The workspace it is about.
    pub root: PathBuf,
}

/// What the C library calls it, and with it nearly every program.
const DENIED: &str = "Permission denied";
/// The same for what is mounted so that nobody writes to it.
const READ_ONLY: &str = "Read-only file system";

impl Advice {
    /// Whether what a command said may be about the workspace.
    pub(super) fn fits(&self, said: &str) -> bool {
        self.is_about(said, DENIED)
    }

    fn is_about(&self, said: &str, sign: &str) -> bool {
        said.lines().any(|line| self.is_meant(line, sign))
    }

    /// Programs name what they were denied right before the words (`cat: /etc/shadow: Permission denied`) or behind
    /// them (`Permission denied: '/etc/shadow'`). What stands further in front is the program itself.
    fn is_meant(&self, line: &str, sign: &str) -> bool {
        let Some((before, behind)) = line.split_once(sign) else {
            return false;
        };
        let before = before.trim_end_matches([':', ' ', '(']);
        let denied = before.rsplit(": ").next().unwrap_or(before);
        let mut named = paths(denied).chain(paths(behind));
        named.all(|path| path.starts_with(&self.root))
    }
}

/// The absolute paths in a text.
fn paths(text: &str) -> impl Iterator<Item = &Path> {
    let words = text.split(|c: char| c.is_whitespace() || "'\"`\u{2018}\u{2019}()[]<>,;:".contains(c));
    words.filter(|word| word.starts_with('/')).map(Path::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_about_the_workspace_is_not_given_for_what_lies_outside_of_it() {
        let advice = Advice {
            text: "do".to_owned(),
            root: PathBuf::from("/work/a"),
        };
        for (said, fits) in [
            ("touch: cannot touch 'x': Permission denied", true),
            ("/usr/bin/touch: cannot touch 'x': Permission denied", true),
            ("touch: cannot touch '/work/a/x': Permission denied", true),
            ("bash: line 1: x: Permission denied\n", true),
            ("PermissionError: [Errno 13] Permission denied: 'x'", true),
            ("PermissionError: [Errno 13] Permission denied: '/work/a/x'", true),
            (
                "cat: /etc/shadow: Permission denied\ntouch: cannot touch 'x': Permission denied",
                true,
            ),
            ("bash: line 1: /usr/bin/sleep: Permission denied", false),
            ("/usr/bin/sleep: Permission denied", false),
            ("cat: /etc/shadow: Permission denied", false),
            ("cp: cannot create regular file '/work/ab/x': Permission denied", false),
            (
                "cp: cannot create regular file \u{2018}/etc/x\u{2019}: Permission denied",
                false,
            ),
            ("PermissionError: [Errno 13] Permission denied: '/etc/x'", false),
            ("cannot open /etc/x (Permission denied)", false),
            ("no such file", false),
        ] {
            assert_eq!(advice.fits(said), fits, "{said}");
        }
    }
}
