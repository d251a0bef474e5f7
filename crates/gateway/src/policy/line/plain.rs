//! Turns a syntax tree into the tree that runs without a shell, or says why it needs one.

mod globs;
mod programs;

use brush_parser::ast::{
    self, AndOr, CommandPrefixOrSuffixItem as Item, CompoundListItem, IoFileRedirectKind, IoFileRedirectTarget,
    IoRedirect, Program, SeparatorOperator, SimpleCommand,
};

use super::position::{Position, Source};
use super::tree::{Action, Command, Joint, List, Piece, Pipeline, RUNNER_BUILTINS, Redirection, Tree, Word};
use super::word::{self, Context, Part};

/// Why a word is not plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotPlain {
    /// Something in it is computed; what stands before is still true.
    Expanded(&'static str),
    /// The word is made anew, its start included.
    Rewritten(&'static str),
}

/// Builtins that no program stands in for and that the runner does not implement.
#[rustfmt::skip]
const SHELL_BUILTINS: [&str; 47] = [
    ".", "alias", "bg", "bind", "break", "builtin", "caller", "command", "compgen", "complete",
    "compopt", "continue", "declare", "dirs", "disown", "enable", "eval", "exec", "exit",
    "export", "fc", "fg", "getopts", "hash", "help", "history", "jobs", "let", "local",
    "logout", "mapfile", "popd", "pushd", "read", "readarray", "readonly", "return", "set",
    "shift", "shopt", "source", "suspend", "trap", "typeset", "unalias", "unset", "wait",
];

/// Builtins that also change the shell although a program of that name may exist.
const STATEFUL_BUILTINS: [&str; 5] = ["times", "type", "ulimit", "umask", "kill"];

pub(super) fn build(text: &str, program: &Program) -> Result<Tree, &'static str> {
    let source = Source::new(text);
    let mut lists = Vec::new();
    for CompoundListItem(and_or, separator) in program.complete_commands.iter().flat_map(|c| &c.0) {
        match separator {
            SeparatorOperator::Async => return Err("a background command"),
            SeparatorOperator::Sequence => {}
        }
        let first = pipeline(&source, &and_or.first)?;
        let mut rest = Vec::new();
        for item in &and_or.additional {
            rest.push(match item {
                AndOr::And(next) => (Joint::And, pipeline(&source, next)?),
                AndOr::Or(next) => (Joint::Or, pipeline(&source, next)?),
            });
        }
        lists.push(List { first, rest });
    }
    Ok(Tree { lists })
}

fn pipeline(text: &Source, pipeline: &ast::Pipeline) -> Result<Pipeline, &'static str> {
    if pipeline.bang {
        return Err("`!`");
    }
    if pipeline.timed.is_some() || pipeline.seq.is_empty() {
        return Err("`time`");
    }
    let mut commands = Vec::new();
    for item in &pipeline.seq {
        commands.push(match item {
            ast::Command::Simple(simple) => command(text, simple)?,
            ast::Command::Compound(..) => return Err("a compound command"),
            ast::Command::Function(_) => return Err("a function"),
            ast::Command::ExtendedTest(..) => return Err("`[[`"),
        });
    }
    if commands.len() > 1 && commands.iter().any(|command| command.name == "cd") {
        return Err("`cd` in a pipe");
    }
    Ok(Pipeline { commands })
}

fn command(text: &Source, simple: &SimpleCommand) -> Result<Command, &'static str> {
    let mut redirections = Vec::new();
    let mut args = Vec::new();
    for item in simple.prefix.iter().flat_map(|prefix| &prefix.0) {
        match item {
            Item::IoRedirect(redirect) => redirection(redirect, &mut redirections)?,
            Item::AssignmentWord(..) => return Err("an assignment"),
            Item::Word(_) | Item::ProcessSubstitution(..) => return Err("a process substitution"),
        }
    }
    let Some(name) = &simple.word_or_name else {
        return Err("a redirection without a command");
    };
    for item in simple.suffix.iter().flat_map(|suffix| &suffix.0) {
        match item {
            Item::IoRedirect(redirect) => redirection(redirect, &mut redirections)?,
            Item::Word(word) => args.push(read_word(&word.value)?),
            Item::AssignmentWord(assignment, word) => match &assignment.value {
                ast::AssignmentValue::Scalar(_) => args.push(read_word(&word.value)?),
                ast::AssignmentValue::Array(_) => return Err("an array"),
            },
            Item::ProcessSubstitution(..) => return Err("a process substitution"),
        }
    }
    let position = name.loc.as_ref().map_or(Position::START, |span| {
        let mut index = span.start.index;
        while text.chars.get(index..index + 2) == Some(&['\\', '\n']) {
            index += 2;
        }
        text.at(index)
    });
    // Bash reads on to the bracket that closes it, over blanks and ends of lines.
    let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.value.trim_start_matches(of_name).starts_with('[') && !name.value.starts_with('[') {
        return Err("a subscript");
    }
    let name = read_word(&name.value)?
        .literal()
        .ok_or("a command name with a pattern")?;
    check_builtin(&name, &args)?;
    Ok(Command {
        name,
        args,
        redirections,
        position,
    })
}

fn check_builtin(name: &str, args: &[Word]) -> Result<(), &'static str> {
    if SHELL_BUILTINS.contains(&name) || STATEFUL_BUILTINS.contains(&name) {
        return Err("a builtin of the shell");
    }
    if name == "cd" && RUNNER_BUILTINS.contains(&name) {
        let plain = match args {
            [directory] => directory
                .literal()
                .is_some_and(|text| !text.is_empty() && !text.starts_with('-')),
            [] | [_, _, ..] => false,
        };
        if !plain {
            return Err("`cd` without a plain directory");
        }
    }
    if programs::differ(name, args) {
        return Err("what only the builtin of that name understands");
    }
    Ok(())
}

fn read_word(raw: &str) -> Result<Word, &'static str> {
    let parts = word::parse(raw, Context::Word);
    if let Some(what) = parts.odd.first() {
        return Err(what);
    }
    word(&parts.parts).map_err(|reason| match reason {
        NotPlain::Expanded(what) | NotPlain::Rewritten(what) => what,
    })
}

/// A word without anything that only a shell can compute.
pub(super) fn word(parts: &[Part]) -> Result<Word, NotPlain> {
    let unquoted: String = parts
        .iter()
        .map(|part| match part {
            Part::Text(text) => text.as_str(),
            Part::Quoted(_) | Part::Expansion(_) => "",
        })
        .collect();
    if word::may_expand_braces(parts) {
        return Err(NotPlain::Rewritten("a brace expansion"));
    }
    if matches!(parts.first(), Some(Part::Text(text)) if text.starts_with('~'))
        || unquoted.contains("=~")
        || unquoted.contains(":~")
    {
        return Err(NotPlain::Rewritten("a tilde expansion"));
    }
    if parts.iter().any(|part| matches!(part, Part::Expansion(_))) {
        return Err(NotPlain::Expanded("an expansion"));
    }
    globs::pieces(parts)
        .map(|pieces| Word { pieces })
        .ok_or(NotPlain::Expanded("a pattern that is not understood"))
}

/// The text every expansion of the word begins with.
pub(super) fn literal_start(word: &Word) -> String {
    match word.pieces.first() {
        Some(Piece::Literal(text)) => text.clone(),
        Some(Piece::AnyText | Piece::AnyChar | Piece::OneOf { .. }) | None => String::new(),
    }
}

fn redirection(redirect: &IoRedirect, into: &mut Vec<Redirection>) -> Result<(), &'static str> {
    let fd_of = |fd: &Option<i32>, otherwise: u32| match fd {
        None => Ok(otherwise),
        Some(fd) => u32::try_from(*fd)
            .ok()
            .filter(|fd| *fd <= 9)
            .ok_or("a descriptor above 9"),
    };
    match redirect {
        IoRedirect::File(fd, kind, target) => {
            let target = match target {
                IoFileRedirectTarget::Filename(word) => target_text(&word.value)?,
                IoFileRedirectTarget::Duplicate(word) => literal_text(&word.value)?,
                IoFileRedirectTarget::Fd(source) => source.to_string(),
                IoFileRedirectTarget::ProcessSubstitution(..) => {
                    return Err("a process substitution");
                }
            };
            let (fd, action) = match kind {
                IoFileRedirectKind::Read => (fd_of(fd, 0)?, Action::Read(target)),
                IoFileRedirectKind::Write | IoFileRedirectKind::Clobber => (fd_of(fd, 1)?, Action::Write(target)),
                IoFileRedirectKind::Append => (fd_of(fd, 1)?, Action::Append(target)),
                IoFileRedirectKind::ReadAndWrite => (fd_of(fd, 0)?, Action::ReadWrite(target)),
                IoFileRedirectKind::DuplicateInput => (fd_of(fd, 0)?, copy(&target)?),
                IoFileRedirectKind::DuplicateOutput => {
                    if fd.is_none() && !is_descriptor(&target) {
                        both(Action::Write(target), into);
                        return Ok(());
                    }
                    (fd_of(fd, 1)?, copy(&target)?)
                }
            };
            into.push(Redirection { fd, action });
        }
        IoRedirect::HereDocument(fd, document) => {
            let text = if document.requires_expansion {
                body_text(&document.doc.value)?
            } else {
                document.doc.value.clone()
            };
            into.push(Redirection {
                fd: fd_of(fd, 0)?,
                action: Action::Text(text),
            });
        }
        IoRedirect::HereString(fd, word) => {
            let mut text = target_text(&word.value)?;
            text.push('\n');
            into.push(Redirection {
                fd: fd_of(fd, 0)?,
                action: Action::Text(text),
            });
        }
        IoRedirect::OutputAndError(word, append) => {
            let target = target_text(&word.value)?;
            let action = if *append {
                Action::Append(target)
            } else {
                Action::Write(target)
            };
            both(action, into);
        }
    }
    Ok(())
}

fn both(action: Action, into: &mut Vec<Redirection>) {
    into.push(Redirection { fd: 1, action });
    into.push(Redirection {
        fd: 2,
        action: Action::CopyOf(1),
    });
}

/// `1`, `-`, and `1-`, which moves a descriptor: behind `>&` these are no names of files. What else begins like them is
/// read in more than one way.
fn is_descriptor(target: &str) -> bool {
    target.is_empty() || target.starts_with(|c: char| c.is_ascii_digit() || c == '-')
}

fn copy(target: &str) -> Result<Action, &'static str> {
    match target.parse::<u32>() {
        Ok(source) if source <= 9 => Ok(Action::CopyOf(source)),
        Ok(_) | Err(_) if target == "-" => Ok(Action::Close),
        Ok(_) | Err(_) => Err("a redirection that is not understood"),
    }
}

fn target_text(raw: &str) -> Result<String, &'static str> {
    // To bash the number in `>2>x` is the descriptor of what follows, to the parser it is a name.
    if raw.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("a redirection to a number");
    }
    literal_text(raw)
}

fn literal_text(raw: &str) -> Result<String, &'static str> {
    read_word(raw)?.literal().ok_or("a pattern in a redirection")
}

fn body_text(body: &str) -> Result<String, &'static str> {
    let parts = word::parse(body, Context::Body);
    let mut text = String::new();
    for part in parts.parts {
        match part {
            Part::Text(part) | Part::Quoted(part) => text.push_str(&part),
            Part::Expansion(_) => return Err("an expansion in a here-document"),
        }
    }
    Ok(text)
}
