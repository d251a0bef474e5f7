//! Simple commands: assignments before them, their words and redirections.

use brush_parser::ast::{
    Assignment, AssignmentName, AssignmentValue, CommandPrefixOrSuffixItem as Item, IoFileRedirectTarget, IoRedirect,
    SimpleCommand, Word,
};

use super::numbers::Certain;
use super::{Walker, locale};
use crate::policy::line::arithmetic::Place;
use crate::policy::line::guard::LineError;
use crate::policy::line::plain;
use crate::policy::line::position::{Origin, Position};
use crate::policy::line::word::{self, Context, Part};
use crate::policy::line::{Arg, CommandUse};

/// Builtins whose arguments `x=…` are assignments.
pub(in crate::policy::line) const DECLARING: [&str; 5] = ["export", "local", "declare", "typeset", "readonly"];

impl Walker<'_> {
    pub(super) fn simple(&mut self, simple: &SimpleCommand) -> Result<(), LineError> {
        for item in simple.prefix.iter().flat_map(|prefix| &prefix.0) {
            match item {
                Item::IoRedirect(redirection) => self.redirection(redirection)?,
                // `IFS= read -r x` splits its own input and nothing else.
                Item::AssignmentWord(assignment, word) if assigned_name(assignment) == "IFS" && is_read(simple) => {
                    self.word(word, Context::Word)?;
                }
                Item::AssignmentWord(assignment, word) => self.assignment(assignment, word)?,
                Item::Word(word) => drop(self.arg(word)?),
                Item::ProcessSubstitution(_, subshell) => self.list(&subshell.list)?,
            }
        }
        let Some(word) = &simple.word_or_name else {
            return Ok(());
        };
        let position = self.word_position(word);
        let name = self.arg(word)?;
        // Bash knows them by the word as it is written: what follows `\export` is split like any other word.
        let declares = DECLARING.contains(&word.value.as_str());
        let (mut args, mut arg_positions) = (Vec::new(), Vec::new());
        for item in simple.suffix.iter().flat_map(|suffix| &suffix.0) {
            match item {
                Item::IoRedirect(redirection) => self.redirection(redirection)?,
                Item::Word(word) => {
                    arg_positions.push(self.word_position(word));
                    args.push(self.arg(word)?);
                }
                Item::AssignmentWord(assignment, word) if declares => {
                    arg_positions.push(self.word_position(word));
                    // Bash expands them here, but not in `x=…` before a command: `local x={y,'($(id))'}` sets `x` twice.
                    let is_list = matches!(assignment.value, AssignmentValue::Array(_));
                    if !is_list && word::may_expand_braces(&word::parse(&word.value, Context::Word).parts) {
                        self.unclear("braces in a declaration", position);
                    }
                    self.assignment(assignment, word)?;
                    self.facts.lists.declared(assignment, position);
                    args.push(Arg::Static(assigned_name(assignment).to_owned()));
                }
                Item::AssignmentWord(assignment, word) => {
                    arg_positions.push(self.word_position(word));
                    if matches!(assignment.value, AssignmentValue::Array(_)) {
                        self.unclear("an array among arguments", position);
                        self.assignment(assignment, word)?;
                    }
                    args.push(self.arg(word)?);
                }
                Item::ProcessSubstitution(_, subshell) => {
                    self.list(&subshell.list)?;
                    arg_positions.push(position);
                    args.push(Arg::Computed {
                        prefix: String::new(),
                        written: "<(…)".to_owned(),
                    });
                }
            }
        }
        if self.facts.commands.len() >= self.limits.commands_max {
            return Err(LineError::TooMany {
                max: self.limits.commands_max,
            });
        }
        if locale::is_given(&name, &args) {
            self.facts.locale.get_or_insert(position);
        }
        self.facts.numbers.given(&name, &args);
        self.facts.lists.given(&name, &args, position);
        self.facts.commands.push(CommandUse {
            name,
            args,
            position,
            arg_positions,
        });
        Ok(())
    }

    fn arg(&mut self, word: &Word) -> Result<Arg, LineError> {
        let parts = self.word(word, Context::Word)?;
        // `{x}>file` sets the variable `x`, and `{x[i]}>file` evaluates `i`; the parser takes both for words.
        let inner = word.value.strip_prefix('{').and_then(|w| w.strip_suffix('}'));
        let name = inner.and_then(|inner| inner.split('[').next());
        if name.is_some_and(is_name) {
            self.unclear("a name in braces", self.word_position(word));
        }
        Ok(describe(&parts, &word.value))
    }

    fn assignment(&mut self, assignment: &Assignment, word: &Word) -> Result<(), LineError> {
        let position = self.word_position(word);
        let name = assigned_name(assignment);
        let changed = self.facts.locale;
        self.assign(name, position);
        let value = known_value(assignment);
        if locale::is_kept(name, value.as_deref()) {
            self.facts.locale = changed;
        }
        if let Some(assigned) = self.facts.assignments.last_mut() {
            assigned.value = value;
        }
        self.facts.lists.assigned(assignment);
        if let AssignmentName::ArrayElementName(_, subscript) = &assignment.name {
            self.arithmetic_at(subscript, position)?;
        }
        match &assignment.value {
            AssignmentValue::Scalar(value) => {
                let certain = match assignment.append {
                    true => Certain::of_appended(value),
                    false => Certain::of_value(value),
                };
                self.facts.numbers.assigned(name, certain);
                // The value stands at the end of the word; its own place is not recorded.
                let origin = self.word_origin(word);
                let skipped = word.value.chars().count() - value.value.chars().count();
                self.text(&value.value, origin.inside(skipped, true), Context::Word)?;
            }
            AssignmentValue::Array(elements) => {
                let mut certain = Certain::NUMBER;
                let near = Origin {
                    base: None,
                    fallback: self.word_origin(word).fallback,
                };
                for (key, value) in elements {
                    // With braces behind it a key is text: the elements of `([0]={1,2})` are `[0]=1` and `[0]=2`.
                    certain = certain.and(match key {
                        Some(_) => Certain::of_value(value),
                        None => Certain::of_words(value),
                    });
                    if let Some(key) = key {
                        self.arithmetic_at(&key.value, position)?;
                    } else if value.value.starts_with('[') {
                        // Bash reads a subscript up to its bracket, across blanks and comments.
                        self.unclear("an array element that begins with `[`", position);
                    }
                    self.text(&value.value, near, Context::Word)?;
                }
                self.facts.numbers.assigned(name, certain);
            }
        }
        Ok(())
    }

    fn arithmetic_at(&mut self, text: &str, position: Position) -> Result<(), LineError> {
        if text.contains(['\'', '"', '\\', '`', '$', ' ']) {
            self.unclear("a subscript that is not understood", position);
        }
        self.arithmetic_text(text, Place::Expression, position)
    }

    pub(super) fn redirection(&mut self, redirection: &IoRedirect) -> Result<(), LineError> {
        match redirection {
            IoRedirect::File(_, _, target) => match target {
                IoFileRedirectTarget::Filename(word) => self.arg(word).map(drop),
                IoFileRedirectTarget::Duplicate(word) => {
                    // Bash expands this word twice: `ls >&x\$\(id\)` runs `id`.
                    let plain = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
                    // To bash `>&-` closes and ends there: `>&-id` runs `id`.
                    let closes = word.value.len() > 1 && word.value.starts_with('-');
                    if closes || !word.value.chars().all(plain) {
                        self.unclear("a target of `>&`", self.word_position(word));
                    }
                    self.arg(word).map(drop)
                }
                IoFileRedirectTarget::Fd(_) => Ok(()),
                IoFileRedirectTarget::ProcessSubstitution(_, subshell) => self.list(&subshell.list),
            },
            IoRedirect::HereDocument(_, document) => self.here_document(document),
            IoRedirect::HereString(_, word) | IoRedirect::OutputAndError(word, _) => self.arg(word).map(drop),
        }
    }
}

fn is_read(simple: &SimpleCommand) -> bool {
    simple.word_or_name.as_ref().is_some_and(|word| word.value == "read")
}

pub(super) fn assigned_name(assignment: &Assignment) -> &str {
    match &assignment.name {
        AssignmentName::VariableName(name) | AssignmentName::ArrayElementName(name, _) => name,
    }
}

/// The text that an assignment gives its name, if that is all it does.
fn known_value(assignment: &Assignment) -> Option<String> {
    let (AssignmentName::VariableName(_), AssignmentValue::Scalar(value)) = (&assignment.name, &assignment.value)
    else {
        return None;
    };
    if assignment.append {
        return None;
    }
    let parts = word::parse(&value.value, Context::Word).parts;
    let texts = parts.iter().map(|part| match part {
        Part::Text(text) | Part::Quoted(text) => Some(text.as_str()),
        Part::Expansion(_) => None,
    });
    texts.collect()
}

pub(in crate::policy::line) fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The text of a word that is known before it runs.
pub(in crate::policy::line) fn known_text(word: &Word) -> Option<String> {
    let parts = word::parse(&word.value, Context::Word).parts;
    describe(&parts, &word.value).known().map(str::to_owned)
}

/// What is known of a word before it runs.
fn describe(parts: &[Part], written: &str) -> Arg {
    let mut prefix = String::new();
    for part in parts {
        match part {
            Part::Text(text) | Part::Quoted(text) => prefix.push_str(text),
            Part::Expansion(_) => break,
        }
    }
    let written = written.to_owned();
    match plain::word(parts) {
        Ok(word) => match word.literal() {
            Some(text) => Arg::Static(text),
            None => Arg::Pattern {
                prefix: plain::literal_start(&word),
                written,
            },
        },
        // Braces and a tilde change the start of the word too.
        Err(plain::NotPlain::Rewritten(_)) => Arg::Computed {
            prefix: String::new(),
            written,
        },
        Err(plain::NotPlain::Expanded(_)) => Arg::Computed { prefix, written },
    }
}
