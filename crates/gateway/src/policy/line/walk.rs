//! Walks the whole syntax tree and collects what a line would run and set.
//!
//! Each arm is written out: a node the parser may gain later does not compile here until somebody
//! has decided what it means. Text inside words is taken apart by [`super::word`], and what it runs
//! is parsed and walked in turn.

mod arguments;
mod conditions;
mod documents;
mod endings;
mod lists;
mod locale;
mod numbers;
mod words;

use brush_parser::ast::{
    AndOr, Command, CompoundCommand, CompoundList, CompoundListItem, ExtendedTestExpr, FunctionDefinition, Pipeline,
    Program, RedirectList,
};
use brush_parser::{SourceSpan, ast};

use super::arithmetic::Place;
use super::documents::Documents;
use super::guard::{self, Limits, LineError};
use super::joined::joined;
use super::position::{Origin, Position, Source};
use super::word::Context;
use super::{AssignmentUse, CommandUse, EvaluatedName, FunctionUse, Unclear};
use lists::Lists;
use numbers::{Certain, Numbers};

pub(super) use arguments::{DECLARING, is_name, known_text};
pub(in crate::policy) use locale::{decides as decides_locale, is_harmless as is_harmless_locale};

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) commands: Vec<CommandUse>,
    pub(super) assignments: Vec<AssignmentUse>,
    pub(super) functions: Vec<FunctionUse>,
    pub(super) evaluated: Vec<EvaluatedName>,
    pub(super) beyond_ascii: Option<Position>,
    pub(super) unclear: Vec<Unclear>,
    numbers: Numbers,
    lists: Lists,
    lookups: usize,
    documents: usize,
    /// Where the locale is changed.
    locale: Option<Position>,
}

/// How often the whole text is searched for the place of a substitution.
const LOOKUPS_MAX: usize = 64;

/// What is visible was parsed, `text` is what bash will read.
pub(super) fn walk(
    text: &str,
    documents: &Documents<'_>,
    program: &Program,
    limits: Limits,
) -> Result<Facts, LineError> {
    let source = Source::new(documents.visible());
    let mut facts = Facts::default();
    let mut walker = Walker {
        whole: &source,
        documents,
        local: &source.chars,
        origin: Origin::WHOLE,
        depth: 0,
        limits,
        facts: &mut facts,
    };
    walker.suspicious_text(text);
    let beyond = text.chars().position(|c| !c.is_ascii());
    walker.facts.beyond_ascii = beyond.map(|index| source.at(index));
    walker.program(program)?;
    if let Some(position) = guard::uncertain(documents)?.filter(|_| facts.documents == 0) {
        let what = "a here-document that the reader loses";
        facts.unclear.push(Unclear { what, position });
    }
    if let Some(position) = facts.locale.filter(|_| facts.beyond_ascii.is_some()) {
        let what = "a change of the locale beside characters beyond ASCII";
        facts.unclear.push(Unclear { what, position });
    }
    let untrusted = facts.numbers.unknown();
    facts.unclear.extend(untrusted);
    let read_again = facts.lists.read_again(documents.visible());
    facts.unclear.extend(read_again);
    for command in &mut facts.commands {
        facts.numbers.mark(command);
    }
    facts.evaluated = std::mem::take(&mut facts.numbers).into_evaluated();
    facts.unclear.sort_by_key(|unclear| unclear.position);
    Ok(facts)
}

/// One text being walked: the whole line, or a substitution inside it.
struct Walker<'a> {
    whole: &'a Source,
    documents: &'a Documents<'a>,
    local: &'a [char],
    origin: Origin,
    depth: usize,
    limits: Limits,
    facts: &'a mut Facts,
}

impl Walker<'_> {
    /// Where two readers are known to part ways over the text as such.
    fn suspicious_text(&mut self, text: &str) {
        let control = |c: char| c.is_control() && !"\t\n\r".contains(c);
        if let Some(index) = text.chars().position(control) {
            self.unclear("a control character", self.at(index));
        }
    }

    fn program(&mut self, program: &Program) -> Result<(), LineError> {
        for list in &program.complete_commands {
            self.list(list)?;
        }
        Ok(())
    }

    fn list(&mut self, list: &CompoundList) -> Result<(), LineError> {
        for CompoundListItem(and_or, _) in &list.0 {
            self.pipeline(&and_or.first)?;
            for item in &and_or.additional {
                match item {
                    AndOr::And(pipeline) | AndOr::Or(pipeline) => self.pipeline(pipeline)?,
                }
            }
        }
        Ok(())
    }

    fn pipeline(&mut self, pipeline: &Pipeline) -> Result<(), LineError> {
        for command in &pipeline.seq {
            self.command(command)?;
        }
        Ok(())
    }

    fn command(&mut self, command: &Command) -> Result<(), LineError> {
        match command {
            Command::Simple(simple) => self.simple(simple),
            Command::Compound(compound, redirections) => {
                self.compound(compound)?;
                self.redirections(redirections.as_ref())
            }
            Command::Function(function) => self.function(function),
            Command::ExtendedTest(test, redirections) => {
                self.ends_of_lines(&test.loc);
                self.test(&test.expr, &test.loc)?;
                self.redirections(redirections.as_ref())
            }
        }
    }

    fn compound(&mut self, compound: &CompoundCommand) -> Result<(), LineError> {
        match compound {
            CompoundCommand::Arithmetic(command) => {
                if !self.is_arithmetic(&command.loc) {
                    self.unclear("parentheses that are no arithmetic to bash", self.span(&command.loc));
                }
                self.arithmetic(&command.expr.value, Place::Expression, &command.loc)
            }
            CompoundCommand::ArithmeticForClause(clause) => {
                let parts = [&clause.initializer, &clause.condition, &clause.updater];
                for part in parts.into_iter().flatten() {
                    self.arithmetic(&part.value, Place::Expression, &clause.loc)?;
                }
                self.list(&clause.body.list)
            }
            CompoundCommand::BraceGroup(group) => self.list(&group.list),
            CompoundCommand::Subshell(subshell) => {
                if self.may_be_arithmetic(&subshell.loc) {
                    self.unclear("parentheses that may be arithmetic to bash", self.span(&subshell.loc));
                }
                self.list(&subshell.list)
            }
            CompoundCommand::ForClause(clause) => {
                let at = self.span(&clause.loc);
                let values = clause.values.as_deref().unwrap_or_default();
                self.assign(&clause.variable_name, at);
                let certain = values.iter().map(Certain::of_words).fold(Certain::NUMBER, Certain::and);
                let given = clause.values.as_ref().map_or(Certain::NOTHING, |_| certain);
                self.facts.numbers.assigned(&clause.variable_name, given);
                if !arguments::is_name(&clause.variable_name) {
                    self.unclear("a loop over something that is no name", at);
                }
                for value in values {
                    self.word(value, Context::Word)?;
                }
                self.list(&clause.body.list)
            }
            CompoundCommand::CaseClause(clause) => {
                self.word(&clause.value, Context::Word)?;
                for item in &clause.cases {
                    for pattern in &item.patterns {
                        self.word(pattern, Context::Word)?;
                    }
                    if let Some(list) = &item.cmd {
                        self.list(list)?;
                    }
                }
                Ok(())
            }
            CompoundCommand::IfClause(clause) => {
                self.list(&clause.condition)?;
                self.list(&clause.then)?;
                for part in clause.elses.iter().flatten() {
                    if let Some(condition) = &part.condition {
                        self.list(condition)?;
                    }
                    self.list(&part.body)?;
                }
                Ok(())
            }
            CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
                self.list(&clause.0)?;
                self.list(&clause.1.list)
            }
            CompoundCommand::Coprocess(coprocess) => {
                self.unclear("`coproc`", self.span(&coprocess.loc));
                self.command(&coprocess.body)
            }
        }
    }

    /// Whether the parentheses stand side by side at both ends. The parser does not ask for that, and to bash
    /// `( (*) )` is a command whose name is that of a file.
    fn is_arithmetic(&self, span: &SourceSpan) -> bool {
        let pair = |at: Option<usize>| at.and_then(|at| self.local.get(at..at + 2));
        let start = self.settle(span.start.index);
        pair(Some(start)) == Some(&['(', '(']) && pair(span.end.index.checked_sub(2)) == Some(&[')', ')'])
    }

    /// Whether a subshell begins with two parentheses side by side, and the inner pair is not seen to end alone. To bash
    /// `((ls; ls '$(id)'))` is arithmetic, which knows no single quotes and runs `id`; the parser gives that up where a
    /// `;` or a keyword stands in it.
    fn may_be_arithmetic(&self, span: &SourceSpan) -> bool {
        let start = self.settle(span.start.index);
        let mut rest = self.local.get(start + 1..).unwrap_or_default();
        while let ['\\', '\n', after @ ..] = rest {
            rest = after;
        }
        if self.local.get(start) == Some(&'(') && rest.first() != Some(&'(') {
            return false;
        }
        let mut open = 0_usize;
        for (at, c) in rest.iter().enumerate() {
            match c {
                '(' => open += 1,
                ')' if open == 1 => return matches!(rest.get(at + 1), Some(')' | '\\') | None),
                ')' => open = open.saturating_sub(1),
                '\'' | '"' | '\\' | '`' | '$' | '#' => return true,
                _ => {}
            }
        }
        true
    }

    fn function(&mut self, function: &FunctionDefinition) -> Result<(), LineError> {
        let position = self.word_position(&function.fname);
        self.facts.functions.push(FunctionUse {
            name: function.fname.value.clone(),
            position,
        });
        self.compound(&function.body.0)?;
        self.redirections(function.body.1.as_ref())
    }

    fn test(&mut self, test: &ExtendedTestExpr, loc: &SourceSpan) -> Result<(), LineError> {
        use ast::{BinaryPredicate as Binary, UnaryPredicate as Unary};
        match test {
            ExtendedTestExpr::And(left, right) | ExtendedTestExpr::Or(left, right) => {
                self.test(left, loc)?;
                self.test(right, loc)
            }
            ExtendedTestExpr::Not(inner) | ExtendedTestExpr::Parenthesized(inner) => self.test(inner, loc),
            ExtendedTestExpr::UnaryTest(predicate, word) => {
                if matches!(
                    predicate,
                    Unary::ShellVariableIsSetAndAssigned | Unary::ShellVariableIsSetAndNameRef
                ) {
                    // The name may hold a subscript, and subscripts run commands.
                    self.unclear("`[[ -v`", self.span(loc));
                }
                self.word(word, Context::Word).map(drop)
            }
            ExtendedTestExpr::BinaryTest(predicate, left, right) => {
                self.word(left, Context::Word)?;
                let context = match predicate {
                    Binary::StringMatchesRegex | Binary::StringContainsSubstring => Context::Regex,
                    Binary::ArithmeticEqualTo
                    | Binary::ArithmeticNotEqualTo
                    | Binary::ArithmeticLessThan
                    | Binary::ArithmeticLessThanOrEqualTo
                    | Binary::ArithmeticGreaterThan
                    | Binary::ArithmeticGreaterThanOrEqualTo => {
                        for side in [left, right] {
                            self.arithmetic(side.value.trim_matches('"'), Place::Operand, loc)?;
                        }
                        Context::Word
                    }
                    Binary::FilesReferToSameDeviceAndInodeNumbers
                    | Binary::LeftFileIsNewerOrExistsWhenRightDoesNot
                    | Binary::LeftFileIsOlderOrDoesNotExistWhenRightDoes
                    | Binary::StringExactlyMatchesPattern
                    | Binary::StringDoesNotExactlyMatchPattern
                    | Binary::StringExactlyMatchesString
                    | Binary::StringDoesNotExactlyMatchString
                    | Binary::LeftSortsBeforeRight
                    | Binary::LeftSortsAfterRight => Context::Word,
                };
                self.word(right, context).map(drop)
            }
        }
    }

    fn redirections(&mut self, list: Option<&RedirectList>) -> Result<(), LineError> {
        for redirection in list.iter().flat_map(|list| &list.0) {
            self.redirection(redirection)?;
        }
        Ok(())
    }

    /// Parses and walks a text found inside a word.
    fn nested(&mut self, text: &str, origin: Origin) -> Result<(), LineError> {
        let origin = self.locate(text, origin);
        let here = self.whole.at(origin.fallback);
        if self.depth >= self.limits.nesting_max {
            return Err(LineError::TooDeep {
                max: self.limits.nesting_max,
            });
        }
        let local: Vec<char> = text.chars().collect();
        let mut inner = Walker {
            whole: self.whole,
            documents: self.documents,
            local: &local,
            origin,
            depth: self.depth + 1,
            limits: self.limits,
            facts: self.facts,
        };
        // Where a here-document inside a substitution ends is told differently by every shell.
        if joined(text).replace("<<<", "").contains("<<") {
            inner.unclear("a here-document inside a substitution", here);
        }
        match guard::parse_part(text, self.limits) {
            Ok(program) => inner.program(&program),
            Err(error @ (LineError::TooDeep { .. } | LineError::TooMany { .. })) => Err(error),
            Err(LineError::Unreadable { what, .. }) => {
                inner.unclear(what, here);
                Ok(())
            }
            Err(LineError::Empty | LineError::TooLong { .. } | LineError::Nul(_) | LineError::Syntax { .. }) => {
                inner.unclear("a substitution that is no shell syntax", here);
                Ok(())
            }
        }
    }

    /// A substitution whose place the parser did not keep is looked up in the text.
    fn locate(&mut self, text: &str, origin: Origin) -> Origin {
        let wanted: Vec<char> = text.chars().collect();
        if origin.base.is_some() || wanted.is_empty() || self.facts.lookups >= LOOKUPS_MAX {
            return origin;
        }
        self.facts.lookups += 1;
        let whole = &self.whole.chars;
        let from = origin.fallback.max(1).min(whole.len());
        let found = whole[from..]
            .windows(wanted.len())
            .zip(whole[from - 1..].iter())
            .position(|(window, before)| "(`".contains(*before) && window == wanted);
        match found {
            Some(index) => Origin {
                base: Some(from + index),
                fallback: from + index,
            },
            None => origin,
        }
    }

    fn assign(&mut self, name: &str, position: Position) {
        if locale::decides(name) {
            self.facts.locale.get_or_insert(position);
        }
        self.facts.assignments.push(AssignmentUse {
            name: name.to_owned(),
            value: None,
            position,
        });
    }

    fn unclear(&mut self, what: &'static str, position: Position) {
        self.facts.unclear.push(Unclear { what, position });
    }

    fn span(&self, span: &SourceSpan) -> Position {
        self.at(self.settle(span.start.index))
    }

    fn at(&self, index: usize) -> Position {
        self.whole.at(self.origin.map(index))
    }

    /// The parser lets a token begin before a continued line that precedes it.
    fn settle(&self, mut index: usize) -> usize {
        loop {
            match (self.local.get(index), self.local.get(index + 1)) {
                (Some('\\'), Some('\n')) => index += 2,
                (Some(' ' | '\t'), _) => index += 1,
                _ => return index,
            }
        }
    }
}
