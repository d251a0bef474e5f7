//! One command at a time: functions, builtins, programs, and what launchers launch.

use std::path::Path;

use super::{Allowlist, FoundProgram, Programs, Refusal, Rule, Use, builtins, launchers};
use crate::policy::line::tree::RUNNER_BUILTINS;
use crate::policy::line::{Arg, CommandUse, FunctionUse, Position};

/// Launchers inside launchers: `env nice timeout 5 ls` is three.
const LAUNCHES_MAX: usize = 8;

/// Who starts the command: only a shell has functions and builtins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    Shell,
    Program,
}

/// Where a command and its arguments stand; an argument vector stands nowhere.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    command: Option<Position>,
    args: &'a [Position],
}

impl<'a> At<'a> {
    pub(super) const NOWHERE: Self = Self {
        command: None,
        args: &[],
    };

    pub(super) fn of(command: &'a CommandUse) -> Self {
        Self {
            command: Some(command.position),
            args: &command.arg_positions,
        }
    }

    /// The place of a command that begins at this argument.
    fn arg(self, index: usize) -> Self {
        match self.args.get(index..).and_then(<[Position]>::split_first) {
            Some((command, args)) => Self {
                command: Some(*command),
                args,
            },
            None => Self { args: &[], ..self },
        }
    }
}

pub(super) struct Checker<'a> {
    list: &'a Allowlist,
    programs: &'a dyn Programs,
    functions: Vec<String>,
    launches: usize,
    pub(super) uses: Vec<Use>,
}

impl<'a> Checker<'a> {
    pub(super) fn new(list: &'a Allowlist, programs: &'a dyn Programs) -> Self {
        Self {
            list,
            programs,
            functions: Vec::new(),
            launches: 0,
            uses: Vec::new(),
        }
    }

    /// Takes note of the functions a line defines. A function must not wear the name of anything
    /// else: before it is defined, or after it is unset, its name means the other thing.
    pub(super) fn define(&mut self, functions: &[FunctionUse], refusals: &mut Vec<Refusal>) {
        for function in functions {
            let name = function.name.as_str();
            let why = if !is_function_name(name) {
                Some("its name is unusual")
            } else if builtins::is_builtin(name) || RESERVED.contains(&name) {
                Some("it has the name of a builtin")
            } else if self.list.has_name(name) || self.programs.find(name).is_some() {
                Some("it has the name of a program")
            } else {
                None
            };
            match why {
                Some(why) => refusals.push(Refusal::new(name, Some(function.position), Rule::FunctionName(why))),
                None => self.functions.push(name.to_owned()),
            }
        }
    }

    pub(super) fn command(&mut self, name: &Arg, args: &[Arg], caller: Caller, at: At<'_>) -> Result<(), Refusal> {
        let position = at.command;
        let refuse = |rule| Refusal::new(name.shown(), position, rule);
        let Some(word) = name.known() else {
            return Err(refuse(Rule::ComputedCommand));
        };
        if caller == Caller::Shell {
            if self.functions.iter().any(|function| function == word) {
                return Ok(());
            }
            match builtins::check(word, args) {
                builtins::Verdict::NoBuiltin => {}
                builtins::Verdict::Refused(rule, shown) => {
                    return Err(Refusal::new(&shown, position, rule));
                }
                builtins::Verdict::Free => {
                    self.note_builtin(word, position);
                    return Ok(());
                }
                builtins::Verdict::NeedsListing => {
                    if !self.list.has_name(word) {
                        return Err(refuse(Rule::NotListed));
                    }
                    self.note_builtin(word, position);
                    return Ok(());
                }
                builtins::Verdict::Runs(index) => {
                    let Some(inner) = args.get(index) else {
                        return Ok(());
                    };
                    return self.command(inner, &args[index + 1..], Caller::Shell, at.arg(index));
                }
            }
        }
        let found = self.listed(word).map_err(refuse)?;
        let launcher = launchers::find(&found);
        self.uses.push(Use {
            word: word.to_owned(),
            program: found,
            position,
        });
        let Some(launcher) = launcher else {
            return Ok(());
        };
        self.launches += 1;
        if self.launches > LAUNCHES_MAX {
            return Err(refuse(Rule::UnclearLauncher("too many launchers")));
        }
        let launched = launchers::launched(launcher, args).map_err(|failure| failure.refusal(word, position))?;
        for command in launched {
            let at = command.index.map_or(at, |index| at.arg(index));
            self.command(&command.name, &command.args, Caller::Program, at)?;
        }
        self.launches -= 1;
        Ok(())
    }

    /// Remembers a program that is allowed anyway.
    pub(super) fn note(&mut self, name: &Arg, position: Option<Position>) {
        let found = name.known().and_then(|word| Some((word, self.programs.find(word)?)));
        if let Some((word, program)) = found {
            self.uses.push(Use {
                word: word.to_owned(),
                program,
                position,
            });
        }
    }

    /// A builtin may run as the program of the same name where no shell is needed.
    fn note_builtin(&mut self, word: &str, position: Option<Position>) {
        if !RUNNER_BUILTINS.contains(&word) {
            self.note(&Arg::Static(word.to_owned()), position);
        }
    }

    /// The program a word means, if the list names it.
    fn listed(&self, word: &str) -> Result<FoundProgram, Rule> {
        if word.contains('/') && !word.starts_with('/') {
            return Err(Rule::RelativePath);
        }
        let found = self.programs.find(word);
        if !word.contains('/') {
            let path_listed = found.as_ref().is_some_and(|found| self.list.has_path(&found.requested));
            if !self.list.has_name(word) && !path_listed {
                return Err(Rule::NotListed);
            }
            return found.ok_or(Rule::NotFound);
        }
        let found = found.ok_or(Rule::NotListed)?;
        if self.list.has_path(Path::new(word)) || self.is_listed_by_name(word, &found) {
            return Ok(found);
        }
        Err(Rule::NotListed)
    }

    /// `/bin/ls` is `ls` if it lies on the trusted path, bears that name, and is the very file that
    /// `ls` means there. The name counts since one file may be many programs under many names.
    fn is_listed_by_name(&self, word: &str, found: &FoundProgram) -> bool {
        let Some(name) = Path::new(word).file_name().and_then(|name| name.to_str()) else {
            return false;
        };
        found.on_trusted_path
            && self.list.has_name(name)
            && !word.split('/').any(|part| part == "." || part == "..")
            && self
                .programs
                .find(name)
                .is_some_and(|by_name| by_name.path == found.path)
    }
}

const RESERVED: [&str; 17] = [
    "if", "then", "else", "elif", "fi", "case", "esac", "for", "while", "until", "do", "done", "in", "function",
    "select", "time", "coproc",
];

fn is_function_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}
