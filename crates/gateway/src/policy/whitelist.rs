//! Commands that need no question.
//!
//! A rule is a pattern from a configuration, or a read-only program known here. It is held against
//! each command of a plain line in canonical form, never against the raw text, and every command
//! must be covered. Never covered, whatever the rules say: lines that need a shell, redirections
//! that open files (but `/dev/null`), calls with an environment of their own, launchers, and words
//! that could become options or subcommands when a pattern meets file names (see [`globs`]).
//!
//! A pattern matches from the first word on and ends where a word ends: `^ls` does not cover `lsof`.
//! For programs known to have options that write files or run programs (see [`cautions`]) those
//! options are never covered by a pattern either, unless it is *exact*: anchored at both ends with
//! nothing but literal text in between, so that whoever wrote it saw the whole command.

mod builtin;
pub mod cautions;
mod globs;
mod idle;
#[cfg(test)]
mod tests;

use regex::Regex;
use thiserror::Error;

pub use builtin::{READ_ONLY, ReadOnly, builtin_rules, started_by};
use globs::Glob;

use super::allowlist::is_launcher;
use super::line::tree::{Action, Command, Piece, Redirection};
use super::line::{Limits, Line, Shape, canonical, canonical_argv, read};

/// One rule of the whitelist.
#[derive(Clone, Debug)]
pub struct WhitelistRule {
    matcher: Matcher,
    pub reason: String,
    pub enabled: bool,
    pub source: Source,
    /// The place in words: `operator file …, line 3, column 5`.
    pub origin: String,
}

/// Where a rule was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    BuiltIn,
    Global,
    Project,
    Task,
}

impl Source {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::Global => "operator",
            Self::Project => "project",
            Self::Task => "task",
        }
    }

    pub(super) fn parse(word: &str) -> Option<Self> {
        [Self::BuiltIn, Self::Global, Self::Project, Self::Task]
            .into_iter()
            .find(|source| source.as_str() == word)
    }
}

#[derive(Clone, Debug)]
enum Matcher {
    Pattern {
        regex: Regex,
        /// The same where it ends with a word. The first alternative that fits is what a search finds, and of
        /// `^git (st|status)` that would be the shorter one.
        to_word_end: Option<Regex>,
        exact: bool,
    },
    ReadOnly(&'static ReadOnly),
}

/// A rule as it is written in a configuration.
#[derive(Clone, Debug)]
pub struct RuleText<'a> {
    pub pattern: &'a str,
    pub reason: &'a str,
    pub enabled: bool,
    pub source: Source,
    /// Lines the rule must cover.
    pub matches: &'a [String],
    /// Lines it must not cover.
    pub not_matches: &'a [String],
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WhitelistError {
    #[error("`{pattern}` is no regular expression: {why}")]
    Pattern { pattern: String, why: String },
    #[error("`{pattern}` does not cover its example `{example}`")]
    Uncovered { pattern: String, example: String },
    #[error("`{pattern}` covers `{example}`, which it must not")]
    Covered { pattern: String, example: String },
}

/// What is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    pub command: Asked<'a>,
    pub environment: Environment,
    pub input: Input,
}

#[derive(Clone, Copy, Debug)]
pub enum Asked<'a> {
    Line(&'a Line),
    Argv { file: &'a str, args: &'a [String] },
}

/// Whether the call brings variables of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Environment {
    Built,
    GivenByCall,
}

/// Whether a command is given something to read: by the call, by a pipe, or by text in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    Absent,
    Given,
}

/// The index of the rule that covers each command, in the order of the line; nothing if any command
/// is not covered.
pub fn covers(rules: &[WhitelistRule], candidate: Candidate<'_>) -> Option<Vec<usize>> {
    match candidate.environment {
        Environment::Built => {}
        Environment::GivenByCall => return None,
    }
    match candidate.command {
        Asked::Argv { file, args } => {
            let words = Words::of_argv(file, args);
            Some(vec![covering(rules, &words, candidate.input)?])
        }
        Asked::Line(line) => match &line.shape {
            Shape::NeedsShell(_) => None,
            Shape::Plain(tree) => tree
                .pipelines()
                .flat_map(|pipeline| pipeline.commands.iter().enumerate())
                .map(|(place, command)| {
                    let input = match candidate.input {
                        Input::Absent if place == 0 && !is_fed(command) => Input::Absent,
                        Input::Absent | Input::Given => Input::Given,
                    };
                    covering(rules, &Words::of_command(command)?, input)
                })
                .collect(),
        },
    }
}

/// Whether the line itself gives the command something to read.
fn is_fed(command: &Command) -> bool {
    command.redirections.iter().any(|redirection| match redirection.action {
        Action::Text(_) | Action::Read(_) | Action::ReadWrite(_) => true,
        Action::Write(_) | Action::Append(_) | Action::CopyOf(_) | Action::Close => false,
    })
}

/// Whether a command has an option that writes files or runs programs, in a program that otherwise does not.
pub(super) fn is_cautioned(command: Asked<'_>) -> bool {
    words_of(command).iter().any(|words| !cautions::allow(words))
}

/// The rules that are off and take something of the command away from all others.
pub(super) fn turned_off<'r>(rules: &'r [WhitelistRule], command: Asked<'_>) -> Vec<&'r WhitelistRule> {
    let words = words_of(command);
    let is_met = |rule: &&WhitelistRule| !rule.enabled && words.iter().any(|words| rule.takes_away(words));
    rules.iter().filter(is_met).collect()
}

/// The commands that rules could cover at all.
fn words_of(command: Asked<'_>) -> Vec<Words> {
    match command {
        Asked::Argv { file, args } => vec![Words::of_argv(file, args)],
        Asked::Line(line) => match &line.shape {
            Shape::NeedsShell(_) => Vec::new(),
            Shape::Plain(tree) => tree.commands().filter_map(Words::of_command).collect(),
        },
    }
}

/// The pattern that matches one text and nothing else.
pub fn exactly(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len() + 2);
    pattern.push('^');
    for c in text.chars() {
        if SPECIAL.contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('$');
    pattern
}

/// Rules that a task brought, added to those in force.
#[derive(Clone, Debug)]
pub struct WithTask {
    pub rules: Vec<WhitelistRule>,
    /// Patterns that would have run commands unasked and were left out.
    pub ignored: Vec<String>,
}

/// Whose word a task's rules are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskHand {
    /// An operator started the task.
    Sets,
    /// An agent did: it may ask to be asked, no more.
    Tightens,
}

/// Joins what a task says with the rules in force. All rules that cannot be used are told at once.
pub fn with_task(
    rules: &[WhitelistRule],
    task: &[RuleText<'_>],
    hand: TaskHand,
) -> Result<WithTask, Vec<WhitelistError>> {
    let mut with = WithTask {
        rules: rules.to_vec(),
        ignored: Vec::new(),
    };
    let mut errors = Vec::new();
    for text in task {
        let text = RuleText {
            source: Source::Task,
            ..text.clone()
        };
        match WhitelistRule::new(&text) {
            Err(error) => errors.push(error),
            Ok(_) if text.enabled && hand == TaskHand::Tightens => with.ignored.push(text.pattern.to_owned()),
            // A rule that is off takes away from all others, so what was there may stay.
            Ok(rule) => with.rules.push(rule),
        }
    }
    if errors.is_empty() { Ok(with) } else { Err(errors) }
}

fn covering(rules: &[WhitelistRule], words: &Words, input: Input) -> Option<usize> {
    if is_launcher(&words.name) {
        return None;
    }
    // A rule that was turned off takes what it covers away from every other rule: that is how a
    // project asks to be asked.
    if rules.iter().any(|rule| !rule.enabled && rule.takes_away(words)) {
        return None;
    }
    rules
        .iter()
        .position(|rule| rule.enabled && rule.covers(words) && rule.takes(input))
}

impl WhitelistRule {
    /// Makes a rule and holds it against its own examples.
    pub fn new(text: &RuleText<'_>) -> Result<Self, WhitelistError> {
        let pattern = text.pattern.to_owned();
        let regex = Regex::new(text.pattern).map_err(|error| WhitelistError::Pattern {
            pattern: pattern.clone(),
            why: fault(&error),
        })?;
        let rule = Self {
            matcher: Matcher::Pattern {
                regex,
                // None for a pattern that ends in a comment of its own.
                to_word_end: Regex::new(&format!(r"\A(?:{})(?: |\z)", text.pattern)).ok(),
                exact: is_exact(text.pattern),
            },
            reason: text.reason.to_owned(),
            enabled: text.enabled,
            source: text.source,
            origin: text.source.as_str().to_owned(),
        };
        for example in text.matches {
            if !rule.covers_example(example) {
                let example = example.clone();
                return Err(WhitelistError::Uncovered { pattern, example });
            }
        }
        for example in text.not_matches {
            if rule.covers_example(example) {
                let example = example.clone();
                return Err(WhitelistError::Covered { pattern, example });
            }
        }
        Ok(rule)
    }

    /// The same rule, with the place where it was written.
    #[must_use]
    pub fn written_in(mut self, origin: &str) -> Self {
        origin.clone_into(&mut self.origin);
        self
    }

    /// What an entry that takes this rule's place names: its pattern, or the program of a built-in one.
    pub fn name(&self) -> &str {
        match &self.matcher {
            Matcher::Pattern { regex, .. } => regex.as_str(),
            Matcher::ReadOnly(program) => program.program,
        }
    }

    /// The rule for explanations: its pattern, or the program and what it excludes.
    pub fn explained(&self) -> String {
        match &self.matcher {
            Matcher::Pattern { regex, .. } => regex.as_str().to_owned(),
            Matcher::ReadOnly(program) => program.explained(),
        }
    }

    /// Whether the covered program starts no other, whatever the workspace configures for it.
    pub fn starts_nothing(&self) -> bool {
        match &self.matcher {
            Matcher::Pattern { .. } => false,
            Matcher::ReadOnly(program) => program.starts_nothing(),
        }
    }

    /// Whether it covers one form of the command's words only.
    pub fn is_closed(&self) -> bool {
        match &self.matcher {
            Matcher::Pattern { .. } => false,
            Matcher::ReadOnly(program) => program.is_closed(),
        }
    }

    /// Whether what comes behind the covered command works somewhere else.
    pub fn moves(&self) -> bool {
        match &self.matcher {
            Matcher::Pattern { .. } => false,
            Matcher::ReadOnly(program) => program.moves(),
        }
    }

    fn covers_example(&self, example: &str) -> bool {
        let enabled = Self {
            enabled: true,
            ..self.clone()
        };
        read(example, Limits::STANDARD).is_ok_and(|line| {
            let candidate = Candidate {
                command: Asked::Line(&line),
                environment: Environment::Built,
                input: Input::Absent,
            };
            covers(std::slice::from_ref(&enabled), candidate).is_some()
        })
    }

    /// Whether the rule answers for what the command is given to read as well. One that names a single
    /// command was made of what somebody saw, and `tee notes.txt` or `sqlite3 app.db` does whatever its
    /// input says.
    fn takes(&self, input: Input) -> bool {
        match (input, &self.matcher) {
            (Input::Given, Matcher::Pattern { exact, .. }) => !exact,
            (Input::Given, Matcher::ReadOnly(_)) | (Input::Absent, _) => true,
        }
    }

    fn covers(&self, words: &Words) -> bool {
        match &self.matcher {
            Matcher::Pattern { exact: true, .. } => self.matches(words),
            Matcher::Pattern { exact: false, .. } => {
                self.matches(words) && !words.may_change_subcommand() && cautions::allow(words)
            }
            Matcher::ReadOnly(program) => {
                let words = words.here();
                program.covers(words) && (program.is_closed() || cautions::allow(words))
            }
        }
    }

    /// Whether a rule that is off means the command, or what it may become.
    fn takes_away(&self, words: &Words) -> bool {
        let may_match = match &self.matcher {
            Matcher::Pattern { regex, .. } => words.may_begin_with(&idle::first_text(regex.as_str())),
            Matcher::ReadOnly(program) => !words.globs.is_empty() && program.program == words.name,
        };
        may_match || self.matches(words) || self.matches(words.here())
    }

    /// Whether the command is meant, with whatever options.
    fn matches(&self, words: &Words) -> bool {
        match &self.matcher {
            Matcher::Pattern { regex, to_word_end, .. } => {
                let canonical = &words.canonical;
                let found = regex.find(canonical);
                found.is_some_and(|found| is_whole(canonical, found.start(), found.end()))
                    || to_word_end.as_ref().is_some_and(|regex| regex.is_match(canonical))
            }
            Matcher::ReadOnly(program) => program.covers(words),
        }
    }
}

/// One command as rules see it.
#[derive(Debug)]
pub struct Words {
    name: String,
    args: Vec<String>,
    /// Arguments that may become several file names, in their order.
    globs: Vec<Glob>,
    canonical: String,
    /// The same where git is told to work elsewhere, without that: to read there is no more than to read here.
    elsewhere: Option<Box<Words>>,
}

impl Words {
    fn of_argv(file: &str, args: &[String]) -> Self {
        Self {
            name: file.to_owned(),
            args: args.to_vec(),
            globs: Vec::new(),
            canonical: canonical_argv(file, args),
            elsewhere: match (file, args) {
                ("git", [option, directory, rest @ ..]) if option == "-C" && !directory.starts_with('-') => {
                    Some(Box::new(Self::of_argv(file, rest)))
                }
                (_, _) => None,
            },
        }
    }

    /// The command as it would be said where it works.
    fn here(&self) -> &Self {
        self.elsewhere.as_deref().unwrap_or(self)
    }

    /// Nothing for commands that are never covered.
    fn of_command(command: &Command) -> Option<Self> {
        let harmless = command.redirections.iter().all(is_harmless);
        // A file name can begin with a dash, and a pattern that begins with one piece of text that
        // does not cannot become an option.
        let steady = command.args.iter().all(|word| {
            word.literal().is_some()
                || matches!(word.pieces.first(), Some(Piece::Literal(text)) if !text.starts_with('-'))
        });
        let is_literal = command.args.iter().all(|word| word.literal().is_some());
        let literal: Vec<String> = command.args.iter().filter_map(|word| word.literal()).collect();
        (harmless && steady).then(|| Self {
            elsewhere: is_literal
                .then(|| Self::of_argv(&command.name, &literal).elsewhere)
                .flatten(),
            name: command.name.clone(),
            args: command.args.iter().map(|word| word.unmatched()).collect(),
            globs: command
                .args
                .iter()
                .enumerate()
                .filter_map(|(index, word)| Glob::of(index, word))
                .collect(),
            canonical: canonical(command),
        })
    }
}

fn is_harmless(redirection: &Redirection) -> bool {
    match &redirection.action {
        Action::Write(path) | Action::Append(path) => path == "/dev/null",
        Action::CopyOf(_) | Action::Text(_) => true,
        Action::Read(_) | Action::ReadWrite(_) | Action::Close => false,
    }
}

/// The match begins with the command and ends with a word.
fn is_whole(text: &str, start: usize, end: usize) -> bool {
    start == 0 && end > 0 && (end == text.len() || text[end..].starts_with(' ') || text[..end].ends_with(' '))
}

/// What means more than itself in a pattern.
const SPECIAL: &str = "\\.*+?()[]{}|^$";

/// `^` and `$` around text in which every special character is escaped.
pub fn is_exact(pattern: &str) -> bool {
    let Some(inner) = pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix('$')) else {
        return false;
    };
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        let literal = match c {
            '\\' => chars.next().is_some_and(|c| c.is_ascii_punctuation()),
            _ => !SPECIAL.contains(c),
        };
        if !literal {
            return false;
        }
    }
    true
}

/// What is wrong with a pattern. The error draws the pattern first and says it in its last line.
fn fault(error: &regex::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or_default().trim().to_owned()
}
