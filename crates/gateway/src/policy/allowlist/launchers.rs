//! Programs that start other programs, and how to find what they start.
//!
//! Options are read exactly: unknown and abbreviated ones are refused, since each could move the
//! place where the launched command begins. Everything before that place must be known text.

mod find;
mod table;

use std::path::Path;

use super::{FoundProgram, Refusal, Rule, is_guarded_value};
use crate::policy::line::{Arg, Position};
use table::{LAUNCHERS, Launcher, MANY_IN_ONE, Manner, REFUSED_LAUNCHERS};

/// A command found in the arguments of a launcher.
pub(super) struct Launched {
    pub(super) name: Arg,
    pub(super) args: Vec<Arg>,
    /// Which argument its name is; none for one that is not written.
    pub(super) index: Option<usize>,
}

/// A launcher that was recognised.
#[derive(Clone, Copy)]
pub(super) enum Known {
    Listed(&'static Launcher),
    Find,
    Ssh,
    Refused,
}

pub(super) enum Failure {
    Guarded(String),
    Unclear(&'static str),
}

impl Failure {
    pub(super) fn refusal(self, launcher: &str, position: Option<Position>) -> Refusal {
        match self {
            Self::Guarded(name) => Refusal::new(&name, position, Rule::GuardedVariable),
            Self::Unclear(why) => Refusal::new(launcher, position, Rule::UnclearLauncher(why)),
        }
    }
}

/// Whether a program launches others: by the name it runs as, or by the file it is. A file that is
/// many programs is the one it is called as.
pub(super) fn find(program: &FoundProgram) -> Option<Known> {
    let called = base_name(&program.requested)?;
    let file = base_name(&program.path).filter(|file| !MANY_IN_ONE.contains(file));
    by_name(called).or_else(|| by_name(file?))
}

/// Whether a bare name is the name of a launcher.
pub(in crate::policy) fn is_launcher(name: &str) -> bool {
    base_name(Path::new(name)).is_some_and(|name| match by_name(name) {
        Some(Known::Listed(_) | Known::Ssh | Known::Refused) => true,
        Some(Known::Find) | None => false,
    })
}

fn by_name(name: &str) -> Option<Known> {
    if name == "find" {
        return Some(Known::Find);
    }
    if name == "ssh" {
        return Some(Known::Ssh);
    }
    if REFUSED_LAUNCHERS.contains(&name) {
        return Some(Known::Refused);
    }
    LAUNCHERS
        .iter()
        .find(|launcher| launcher.name == name)
        .map(Known::Listed)
}

fn base_name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// The commands a launcher would start with these arguments.
pub(super) fn launched(launcher: Known, args: &[Arg]) -> Result<Vec<Launched>, Failure> {
    match launcher {
        Known::Refused => Err(Failure::Unclear("it is refused under an allowlist")),
        Known::Find => find::launched(args),
        Known::Ssh => ssh(args),
        Known::Listed(launcher) => listed(launcher, args),
    }
}

fn listed(launcher: &Launcher, words: &[Arg]) -> Result<Vec<Launched>, Failure> {
    let mut rest = Words { args: words };
    let replaced = options(launcher, &mut rest)?;
    for _ in 0..launcher.operands {
        if rest.args.is_empty() {
            return Ok(Vec::new());
        }
        let operand = rest.known()?;
        // With some policies newer versions take the command where a priority may be missing.
        if launcher.name == "chrt" && !operand.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Failure::Unclear("its priority is no number"));
        }
    }
    // Behind `--` a word with `=` is the command to `sudo`.
    let before = words.get(..words.len() - rest.args.len()).and_then(<[Arg]>::last);
    let is_ended = launcher.name == "sudo" && before.is_some_and(|word| word.known() == Some("--"));
    if launcher.manner == Manner::SetsVariables && !is_ended {
        assignments(&mut rest)?;
    }
    let Some((name, args)) = rest.args.split_first() else {
        return match launcher.manner {
            Manner::RunsEchoWithout => Ok(vec![Launched {
                name: Arg::Static("echo".to_owned()),
                args: Vec::new(),
                index: None,
            }]),
            Manner::RunsShellWithout => Err(Failure::Unclear("without a command it runs a shell")),
            Manner::Plain | Manner::SetsVariables => Ok(Vec::new()),
        };
    };
    let index = words.len() - rest.args.len();
    let mut args = args.to_vec();
    if launcher.manner == Manner::RunsEchoWithout {
        if let Some(marker) = replaced {
            if name.shown().contains(&marker) {
                return Err(Failure::Unclear("its input would name the command"));
            }
            args = args.into_iter().map(|arg| replace(arg, &marker)).collect();
        }
        args.push(Arg::Computed {
            prefix: String::new(),
            written: "its input".to_owned(),
        });
    }
    Ok(vec![Launched {
        name: name.clone(),
        args,
        index: Some(index),
    }])
}

/// An argument that holds the place of text from elsewhere is computed.
fn replace(arg: Arg, marker: &str) -> Arg {
    match arg.shown().find(marker) {
        Some(index) => Arg::Computed {
            prefix: arg.shown()[..index].to_owned(),
            written: arg.shown().to_owned(),
        },
        None => arg,
    }
}

/// Reads options up to the first word that is none; gives the replacement text of `xargs -I`.
fn options(launcher: &Launcher, rest: &mut Words<'_>) -> Result<Option<String>, Failure> {
    let mut replaced = None;
    while let Some(first) = rest.args.first() {
        let text = first
            .known()
            .ok_or(Failure::Unclear("a word before the command is computed"))?;
        if text == "--" {
            rest.known()?;
            break;
        }
        if text == "-" && launcher.name == "env" {
            // It stands for `-i`, and no option is read behind it.
            rest.known()?;
            break;
        }
        if !text.starts_with('-') || text == "-" {
            break;
        }
        rest.known()?;
        if let Some(long) = text.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            };
            if launcher.long_values.contains(&name) {
                if value.is_none() {
                    rest.known()?;
                }
            } else if !launcher.long_flags.contains(&name) || value.is_some() {
                return Err(Failure::Unclear("an option is not known"));
            }
        } else {
            short_options(launcher, &text[1..], rest, &mut replaced)?;
        }
    }
    Ok(replaced)
}

fn short_options(
    launcher: &Launcher,
    letters: &str,
    rest: &mut Words<'_>,
    replaced: &mut Option<String>,
) -> Result<(), Failure> {
    if launcher.name == "nice" && letters.chars().all(|c| c.is_ascii_digit()) {
        return Ok(());
    }
    for (index, letter) in letters.char_indices() {
        if launcher.flags.contains(letter) {
            continue;
        }
        if !launcher.values.contains(letter) {
            return Err(Failure::Unclear("an option is not known"));
        }
        let attached = &letters[index + letter.len_utf8()..];
        let value = if attached.is_empty() { rest.known()? } else { attached };
        if launcher.name == "xargs" && letter == 'I' {
            *replaced = Some(value.to_owned());
        }
        if launcher.name == "strace" && value.starts_with(['|', '!']) {
            return Err(Failure::Unclear("it writes into a command"));
        }
        return Ok(());
    }
    Ok(())
}

/// `NAME=VALUE` words before the command.
fn assignments(rest: &mut Words<'_>) -> Result<(), Failure> {
    while let Some(first) = rest.args.first() {
        let Some((name, value)) = first.prefix().split_once('=') else {
            if first.known().is_none() {
                return Err(Failure::Unclear("a word before the command is computed"));
            }
            return Ok(());
        };
        if first.known().is_none() {
            return Err(Failure::Unclear("a word before the command is computed"));
        }
        // To `sudo` this is the command.
        if name.contains('/') {
            return Err(Failure::Unclear("a variable's name is a path"));
        }
        if is_guarded_value(name, Some(value)) {
            return Err(Failure::Guarded(name.to_owned()));
        }
        rest.args = &rest.args[1..];
    }
    Ok(())
}

/// A connection may be opened; options that run local programs and commands for the other side are
/// text for a shell and refused.
fn ssh(args: &[Arg]) -> Result<Vec<Launched>, Failure> {
    let mut rest = Words { args };
    let mut operands = 0;
    while !rest.args.is_empty() {
        let text = rest.known()?;
        match text.strip_prefix('-') {
            Some(letters)
                if operands == 0 && !letters.is_empty() && letters.chars().all(|c| "46ACGnNqTtvVxy".contains(c)) => {}
            Some("p" | "l" | "i") if operands == 0 => drop(rest.known()?),
            Some(_) => return Err(Failure::Unclear("an option is not known")),
            None => operands += 1,
        }
    }
    if operands > 1 {
        return Err(Failure::Unclear("it hands a command to another shell"));
    }
    Ok(Vec::new())
}

/// Arguments that are taken one by one.
struct Words<'a> {
    args: &'a [Arg],
}

impl<'a> Words<'a> {
    /// Takes the next word, which must be known.
    fn known(&mut self) -> Result<&'a str, Failure> {
        let args: &'a [Arg] = self.args;
        let (first, rest) = args
            .split_first()
            .ok_or(Failure::Unclear("an option lacks its value"))?;
        self.args = rest;
        first
            .known()
            .ok_or(Failure::Unclear("a word before the command is computed"))
    }
}
