//! Holds a line or an argument vector against the list of allowed commands.
//!
//! Every command of the syntax tree must be a known word that the list names, a free builtin, or a
//! function whose body passed. Programs that launch others are checked by what they launch, and must
//! be listed themselves. What cannot be told beforehand is refused. A listed shell or interpreter
//! runs what it is given (`sh -c …`): listing it is the operator's choice and warned about at start;
//! the kernel's EXECUTE list still holds then.
//!
//! With [`Allowlist::Any`] nothing is refused here; reading the line has found its syntax errors.

mod builtins;
mod checker;
mod entries;
mod launchers;
mod opened;
#[cfg(test)]
pub(super) mod oracle;
mod refusal;
#[cfg(test)]
mod tests;
mod variables;

use std::path::PathBuf;

pub use builtins::is_builtin;
pub use entries::{Allowlist, AllowlistError};
pub use opened::Opened;
pub use refusal::{Refusal, Rule};
pub use variables::{GUARDED_VARIABLES, is_guarded_value, is_guarded_variable};

pub(super) use launchers::is_launcher;

use super::line::{Arg, Line, Position, Shape, decides_locale, is_harmless_locale};
use checker::{At, Caller, Checker};

/// The programs of the machine, as far as policy needs them.
pub trait Programs {
    /// The program a bare name means on the fixed trusted path, or an absolute path leads to.
    /// Nothing for relative paths, for what does not exist and for what cannot be executed.
    fn find(&self, word: &str) -> Option<FoundProgram>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundProgram {
    /// The file itself, all links resolved.
    pub path: PathBuf,
    /// The path it was found under: its last part is the name it runs as.
    pub requested: PathBuf,
    /// Whether `requested` names a directory of the trusted path, as its text stands: a shell goes the same way once more, and
    /// links on it may lead elsewhere by then. A file of a listed name elsewhere, even a link to the right one, is another command.
    pub on_trusted_path: bool,
    /// Whether it begins with `#!`, so that an interpreter runs.
    pub is_script: bool,
    /// What else must be executable for it to run: loaders, and for a script its interpreters, outermost last.
    pub interpreter_chain: Vec<PathBuf>,
    /// Tells it from whatever is put in its place under the same path; none on the trusted path, where commands cannot
    /// write.
    pub version: Option<String>,
    /// The file, held open by whoever found it: what was checked is what runs.
    pub opened: Opened,
}

/// A program that an accepted line would start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    pub word: String,
    pub program: FoundProgram,
    /// Where it stands; nothing for an argument vector.
    pub position: Option<Position>,
}

/// Checks every command of a line and names the programs it would start.
pub fn check_line(line: &Line, list: &Allowlist, programs: &dyn Programs) -> Result<Vec<Use>, Refusal> {
    let mut checker = Checker::new(list, programs);
    if *list == Allowlist::Any {
        for command in &line.commands {
            checker.note(&command.name, Some(command.position));
        }
        return Ok(checker.uses);
    }
    let mut refusals: Vec<_> = line.unclear.iter().cloned().map(Refusal::from).collect();
    for assignment in &line.assignments {
        if is_guarded_value(&assignment.name, assignment.value.as_deref()) {
            refusals.push(Refusal::new(
                &assignment.name,
                Some(assignment.position),
                Rule::GuardedVariable,
            ));
        }
    }
    checker.define(&line.functions, &mut refusals);
    for command in &line.commands {
        let checked = checker.command(&command.name, &command.args, Caller::Shell, At::of(command));
        refusals.extend(checked.err());
    }
    // The first one in the text is the most useful to whoever wrote it; a command that is not
    // listed says more than the oddity around it.
    match refusals.into_iter().min_by_key(Refusal::order) {
        Some(refusal) => Err(refusal),
        None => Ok(checker.uses),
    }
}

/// Checks what a line finds in its environment: a value that its arithmetic evaluates may run commands, and
/// the line's own assignment of a number may stand in a branch that is not taken. In some locales bash cuts text
/// beyond ASCII in other places than we do.
pub fn check_given(line: &Line, list: &Allowlist, env: &[(String, String)]) -> Result<(), Refusal> {
    let evaluated = |name: &str| line.evaluated.iter().find(|evaluated| evaluated.name == name);
    let text = |value: &str| !value.chars().all(|c| c.is_ascii_digit());
    let is_strange = |(name, value): &(String, String)| decides_locale(name) && !is_harmless_locale(value);
    if let (Some(position), Shape::NeedsShell(_)) = (line.beyond_ascii, &line.shape)
        && *list != Allowlist::Any
        && env.iter().any(is_strange)
    {
        let rule = Rule::Unclear("a character beyond ASCII in a locale that is not UTF-8");
        return Err(Refusal::new("", Some(position), rule));
    }
    let given = env.iter().filter(|(_, value)| text(value));
    match given.filter_map(|(name, _)| evaluated(name)).next() {
        Some(found) if *list != Allowlist::Any => {
            let rule = Rule::Unclear("arithmetic or a search over a variable of the environment");
            Err(Refusal::new("", Some(found.position), rule))
        }
        Some(_) | None => Ok(()),
    }
}

/// Checks a program with its arguments, which runs without any shell.
pub fn check_argv(file: &str, args: &[String], list: &Allowlist, programs: &dyn Programs) -> Result<Vec<Use>, Refusal> {
    let mut checker = Checker::new(list, programs);
    let name = Arg::Static(file.to_owned());
    if *list == Allowlist::Any {
        checker.note(&name, None);
        return Ok(checker.uses);
    }
    let args: Vec<Arg> = args.iter().cloned().map(Arg::Static).collect();
    checker.command(&name, &args, Caller::Program, At::NOWHERE)?;
    Ok(checker.uses)
}
