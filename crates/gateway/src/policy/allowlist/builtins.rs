//! Builtins of bash under an allowlist, and the variables they set.

mod printf;

use super::{Rule, is_guarded_variable};
use crate::policy::line::Arg;

/// What a word means as a builtin.
pub(super) enum Verdict {
    NoBuiltin,
    Free,
    NeedsListing,
    /// Runs the command that begins at this argument.
    Runs(usize),
    Refused(Rule, String),
}

#[rustfmt::skip]
const FREE: [&str; 18] = [
    "cd", ":", "true", "false", "test", "[", "printf", "read", "set", "shift", "local",
    "export", "unset", "break", "continue", "return", "exit", "wait",
];

/// Builtins that run text, change how commands are found, or change how text is read.
#[rustfmt::skip]
const REFUSED: [&str; 19] = [
    "eval", "source", ".", "builtin", "enable", "trap", "alias", "unalias", "hash", "coproc",
    "bind", "complete", "compgen", "compopt", "fc", "shopt", "let", "history", "suspend",
];

#[rustfmt::skip]
const OTHERS: [&str; 23] = [
    "echo", "pwd", "type", "kill", "jobs", "fg", "bg", "disown", "declare", "typeset",
    "readonly", "getopts", "mapfile", "readarray", "times", "ulimit", "umask", "dirs",
    "pushd", "popd", "caller", "help", "logout",
];

pub fn is_builtin(word: &str) -> bool {
    FREE.contains(&word) || REFUSED.contains(&word) || OTHERS.contains(&word) || word == "exec" || word == "command"
}

pub(super) fn check(word: &str, args: &[Arg]) -> Verdict {
    match word {
        "exec" => return passes_on(args, "its options are not allowed here"),
        "command" => return command(args),
        _ if REFUSED.contains(&word) => {
            return Verdict::Refused(Rule::RefusedBuiltin, word.to_owned());
        }
        _ if !is_builtin(word) => return Verdict::NoBuiltin,
        _ => {}
    }
    let checked = match word {
        "printf" => printf::check(args),
        "read" => options_then_names(args, "rs", "adinNptu"),
        "set" => set(args),
        "export" => declared(args, "np"),
        "local" => declared(args, "rx"),
        "declare" | "typeset" | "readonly" => declared(args, "aApgrxlu"),
        "unset" => declared(args, "v"),
        "getopts" => getopts(args),
        "mapfile" | "readarray" => options_then_names(args, "t", "dnOsu"),
        "wait" => options_then_ids(args),
        "jobs" => jobs(args),
        "test" | "[" => test(args),
        _ => Ok(()),
    };
    match checked {
        Err(Stop::Guarded(name)) => Verdict::Refused(Rule::GuardedVariable, name),
        Err(Stop::Unclear(why)) => Verdict::Refused(Rule::UnclearBuiltin(why), word.to_owned()),
        Ok(()) if FREE.contains(&word) => Verdict::Free,
        Ok(()) => Verdict::NeedsListing,
    }
}

enum Stop {
    Guarded(String),
    Unclear(&'static str),
}

fn passes_on(args: &[Arg], why: &'static str) -> Verdict {
    match args.first() {
        Some(first) if first.prefix().starts_with('-') || first.prefix().is_empty() => {
            Verdict::Refused(Rule::UnclearBuiltin(why), "exec".to_owned())
        }
        Some(_) | None => Verdict::Runs(0),
    }
}

/// `command -v` only looks; without options `command` runs what follows, past functions.
fn command(args: &[Arg]) -> Verdict {
    match args.first().map(|first| (first.known(), first)) {
        Some((Some("-v" | "-V"), _)) => Verdict::Free,
        Some((_, first)) if first.prefix().starts_with('-') || first.known().is_none() => Verdict::Refused(
            Rule::UnclearBuiltin("its options are not allowed here"),
            "command".to_owned(),
        ),
        Some(_) | None => Verdict::Runs(0),
    }
}

/// Only options that change neither parsing nor what arguments mean (`-k` would).
fn set(args: &[Arg]) -> Result<(), Stop> {
    const SAFE: [&str; 8] = [
        "errexit",
        "nounset",
        "noglob",
        "pipefail",
        "xtrace",
        "verbose",
        "noclobber",
        "noexec",
    ];
    let unclear = Err(Stop::Unclear("only common options can be checked"));
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let Some(text) = arg.known() else {
            return unclear;
        };
        if text == "--" {
            return Ok(());
        }
        let Some(letters) = text.strip_prefix(['-', '+']) else {
            return Ok(());
        };
        if letters.is_empty() || !letters.chars().all(|c| "eufxvCno".contains(c)) {
            return unclear;
        }
        for _ in letters.matches('o') {
            match rest.next().and_then(Arg::known) {
                Some(option) if SAFE.contains(&option) => {}
                Some(_) | None => return unclear,
            }
        }
    }
    Ok(())
}

/// `export X`, `local -r x=1`: options from a small set, then names.
fn declared(args: &[Arg], allowed: &str) -> Result<(), Stop> {
    for arg in args {
        match arg.known().and_then(|text| text.strip_prefix(['-', '+'])) {
            Some(letters) if letters.chars().all(|c| allowed.contains(c)) => {}
            Some("-") => {}
            Some(_) => return Err(Stop::Unclear("its options cannot be checked")),
            None => names(std::slice::from_ref(arg))?,
        }
    }
    Ok(())
}

fn options_then_names(args: &[Arg], flags: &str, values: &str) -> Result<(), Stop> {
    let unclear = || Stop::Unclear("its options cannot be checked");
    let mut rest = args;
    while let Some((first, after)) = rest.split_first() {
        let text = first.known().ok_or_else(unclear)?;
        rest = after;
        if text == "--" {
            break;
        }
        let Some(letters) = text.strip_prefix('-') else {
            return names(args.get(args.len() - after.len() - 1..).unwrap_or_default());
        };
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            if flags.contains(letter) {
                continue;
            }
            if !values.contains(letter) {
                return Err(unclear());
            }
            let attached: String = letters.by_ref().collect();
            let value = if attached.is_empty() {
                let (next, after) = rest.split_first().ok_or_else(unclear)?;
                rest = after;
                next.clone()
            } else {
                Arg::Static(attached)
            };
            match letter {
                'a' => names(std::slice::from_ref(&value))?,
                // What becomes several words brings names and options along.
                _ if !value.is_one_word() => return Err(unclear()),
                _ => {}
            }
        }
    }
    names(rest)
}

/// The variable is the second word behind one `--`, so what stands before it must be one word and not that `--`.
fn getopts(args: &[Arg]) -> Result<(), Stop> {
    let unclear = Err(Stop::Unclear("its options cannot be checked"));
    let (ended, args) = match args.split_first() {
        Some((first, rest)) if first.known() == Some("--") => (true, rest),
        Some(_) | None => (false, args),
    };
    let Some((letters, rest)) = args.split_first() else {
        return Ok(());
    };
    let may_be_option = letters.prefix().starts_with('-') || letters.known().is_none() && letters.prefix().is_empty();
    if !letters.is_one_word() || may_be_option && !ended {
        return unclear;
    }
    names(rest.get(..1).unwrap_or_default())
}

fn options_then_ids(args: &[Arg]) -> Result<(), Stop> {
    for arg in args {
        match arg {
            Arg::Static(text) if text.starts_with('-') && text != "-n" && text != "-f" => {
                return Err(Stop::Unclear("its options cannot be checked"));
            }
            Arg::Static(_) | Arg::Number { .. } => {}
            Arg::Pattern { .. } | Arg::Computed { .. } | Arg::Path { .. } => {
                return Err(Stop::Unclear("its arguments are computed at run time"));
            }
        }
    }
    Ok(())
}

/// `jobs -x` runs what follows it.
fn jobs(args: &[Arg]) -> Result<(), Stop> {
    let harmless = |text: &str| text.starts_with('%') || text.chars().all(|c| "-lnprs0123456789".contains(c));
    match args.iter().all(|arg| arg.known().is_some_and(harmless)) {
        true => Ok(()),
        false => Err(Stop::Unclear("its options cannot be checked")),
    }
}

/// `-v NAME` evaluates a subscript in the name, so no operator may be computed: a computed word is
/// one quoted word or a number, and a known operator stands where the operator stands. A number that is missing
/// leaves that operator in place of the name, which it is no name for.
fn test(args: &[Arg]) -> Result<(), Stop> {
    let evaluates = |arg: &Arg| matches!(arg.known(), Some("-v" | "-R"));
    if args.iter().any(evaluates) {
        return Err(Stop::Unclear("`-v` evaluates subscripts"));
    }
    let args = match args.split_last() {
        Some((last, rest)) if last.known() == Some("]") => rest,
        Some(_) | None => args,
    };
    let args = match args.split_first() {
        Some((first, rest)) if first.known() == Some("!") => rest,
        Some(_) | None => args,
    };
    if args.iter().all(|arg| arg.known().is_some()) {
        return Ok(());
    }
    let whole = args
        .iter()
        .all(|arg| arg.is_one_word() || matches!(arg, Arg::Number { .. }));
    let clear = match args {
        [_] => true,
        [operator, _] | [_, operator, _] => operator
            .known()
            .is_some_and(|o| o.starts_with(['-', '=', '!', '<', '>'])),
        [] | [_, _, _, _, ..] => false,
    };
    if whole && clear {
        return Ok(());
    }
    Err(Stop::Unclear("quote what is computed, and compare one thing at a time"))
}

fn names(args: &[Arg]) -> Result<(), Stop> {
    for arg in args {
        let text = arg
            .known()
            .ok_or(Stop::Unclear("the variable is computed at run time"))?;
        let name = text.split('=').next().unwrap_or_default();
        name_allowed(name.strip_suffix('+').unwrap_or(name))?;
    }
    Ok(())
}

fn name_allowed(name: &str) -> Result<(), Stop> {
    if is_guarded_variable(name) {
        return Err(Stop::Guarded(name.to_owned()));
    }
    let simple = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(simple) {
        return Err(Stop::Unclear("its variable is no plain name"));
    }
    Ok(())
}
