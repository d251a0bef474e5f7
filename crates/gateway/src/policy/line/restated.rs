//! A line written anew from what was read of it, for bash to run.
//!
//! Two readers that get the same text may still disagree about it: over a comment, a continued line, the place of a
//! here-document, a quote. So bash is not given the text that was checked but what the check made of it: one command after
//! the other, without comments, continued lines, here-documents, backquotes and `$'…'`, each word in one plain form. What
//! our reader did not see is not there. [`restate`] reads the new text once more, and it must come to the same commands.

#[cfg(test)]
mod tests;
mod words;

use std::fmt::Display;

use brush_parser::ast::{
    AndOr, AndOrList, Assignment, AssignmentName, AssignmentValue, CaseItemPostAction, Command,
    CommandPrefixOrSuffixItem as Item, CompoundCommand, CompoundList, CompoundListItem, ExtendedTestExpr,
    IoFileRedirectTarget, IoRedirect, Pipeline, PipelineTimed, ProcessSubstitutionKind, Program, RedirectList,
    SeparatorOperator, SimpleCommand, SubshellCommand, Word,
};

use super::documents::Documents;
use super::guard::{self, Limits};
use super::word::Context;
use super::{Arg, CommandUse, Line, read};

/// A line as bash is given it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restated {
    // INVARIANT: this is what `line` was read from.
    text: String,
    line: Line,
}

impl Restated {
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What was read of the new text.
    pub fn line(&self) -> &Line {
        &self.line
    }
}

/// Writes a line anew; nothing where a part of it is unclear, or has no plain form.
pub fn restate(text: &str, limits: Limits) -> Option<Restated> {
    let before = read(text, limits).ok()?;
    let documents = Documents::read(text);
    let program = guard::parse(&documents, limits).ok()?;
    let source = Source {
        written: text.chars().collect(),
        visible: documents.visible().chars().collect(),
    };
    let mut writer = Writer {
        whole: Some(&source),
        limits,
        depth: 0,
        out: String::with_capacity(text.len() + 32),
    };
    writer.program(&program)?;
    let text = writer.out;
    let line = read(&text, limits).ok()?;
    let is_same = before.unclear.is_empty() && line.unclear.is_empty() && says_the_same(&before, &line);
    is_same.then_some(Restated { text, line })
}

/// Whether two readings come to the same commands and assignments. How a word that is computed is written may differ.
fn says_the_same(one: &Line, other: &Line) -> bool {
    let command = |command: &CommandUse| -> Vec<Option<String>> {
        let words = std::iter::once(&command.name).chain(&command.args);
        words.map(Arg::known).map(|known| known.map(str::to_owned)).collect()
    };
    let assigned = |line: &Line| -> Vec<_> {
        let all = line.assignments.iter();
        all.map(|it| (it.name.clone(), it.value.clone())).collect()
    };
    let functions = |line: &Line| -> Vec<_> { line.functions.iter().map(|it| it.name.clone()).collect() };
    let commands = |line: &Line| -> Vec<_> { line.commands.iter().map(command).collect() };
    commands(one) == commands(other) && assigned(one) == assigned(other) && functions(one) == functions(other)
}

/// The whole text, and what the parser saw of it: of as many characters.
struct Source {
    written: Vec<char>,
    visible: Vec<char>,
}

struct Writer<'a> {
    /// The text whose tree is written; none in substitutions, whose documents are found from outside.
    whole: Option<&'a Source>,
    limits: Limits,
    depth: usize,
    out: String,
}

impl Writer<'_> {
    fn put(&mut self, text: impl Display) {
        use std::fmt::Write as _;
        // Writing into a string does not fail.
        let _ = write!(self.out, "{text}");
    }

    fn program(&mut self, program: &Program) -> Option<()> {
        for line in &program.complete_commands {
            self.list(line)?;
            let end = self.out.strip_suffix("; ").unwrap_or(self.out.trim_end()).len();
            self.out.truncate(end);
            self.put('\n');
        }
        Some(())
    }

    /// What was one line to bash stays one: behind an error it leaves the rest of it.
    fn list(&mut self, list: &CompoundList) -> Option<()> {
        for CompoundListItem(and_or, separator) in &list.0 {
            self.and_or(and_or)?;
            self.put(match separator {
                SeparatorOperator::Async => " & ",
                SeparatorOperator::Sequence => "; ",
            });
        }
        Some(())
    }

    fn and_or(&mut self, list: &AndOrList) -> Option<()> {
        self.pipeline(&list.first)?;
        for item in &list.additional {
            let (operator, pipeline) = match item {
                AndOr::And(pipeline) => (" && ", pipeline),
                AndOr::Or(pipeline) => (" || ", pipeline),
            };
            self.put(operator);
            self.pipeline(pipeline)?;
        }
        Some(())
    }

    fn pipeline(&mut self, pipeline: &Pipeline) -> Option<()> {
        self.put(match &pipeline.timed {
            Some(PipelineTimed::Timed(_)) => "time ",
            Some(PipelineTimed::TimedWithPosixOutput(_)) => "time -p ",
            None => "",
        });
        self.put(if pipeline.bang { "! " } else { "" });
        for (place, command) in pipeline.seq.iter().enumerate() {
            self.put(if place > 0 { " | " } else { "" });
            self.command(command)?;
        }
        Some(())
    }

    fn command(&mut self, command: &Command) -> Option<()> {
        match command {
            Command::Simple(simple) => self.simple(simple),
            Command::Compound(compound, redirections) => {
                self.compound(compound)?;
                self.redirections(redirections.as_ref())
            }
            Command::Function(function) => {
                let name = &function.fname.value;
                self.put(name);
                // Bash lets functions have names that variables cannot have.
                super::walk::is_name(&name.replace('-', "_")).then_some(())?;
                self.put(" () ");
                self.compound(&function.body.0)?;
                self.redirections(function.body.1.as_ref())
            }
            Command::ExtendedTest(test, redirections) => {
                self.put("[[ ");
                self.test(&test.expr)?;
                self.put(" ]]");
                self.redirections(redirections.as_ref())
            }
        }
    }

    fn compound(&mut self, compound: &CompoundCommand) -> Option<()> {
        match compound {
            CompoundCommand::Arithmetic(command) => self.arithmetic("((", &command.expr.value, "))"),
            CompoundCommand::ArithmeticForClause(clause) => {
                let parts = [
                    ("for ((", &clause.initializer),
                    (";", &clause.condition),
                    (";", &clause.updater),
                ];
                for (before, part) in parts {
                    self.arithmetic(before, part.as_ref().map_or("", |part| &part.value), "")?;
                }
                self.put("))");
                self.body("; do ", &clause.body.list, "done")
            }
            CompoundCommand::BraceGroup(group) => self.body("{ ", &group.list, "}"),
            CompoundCommand::Subshell(subshell) => self.subshell(subshell),
            CompoundCommand::ForClause(clause) => {
                self.put("for ");
                self.name(&clause.variable_name)?;
                // The parser does not tell `for x` from `for x in` with nothing behind it, which bash goes over never.
                self.put(" in");
                for value in clause.values.as_ref()? {
                    self.put(' ');
                    self.word(value, Context::Word)?;
                }
                self.body("; do ", &clause.body.list, "done")
            }
            CompoundCommand::CaseClause(clause) => {
                self.put("case ");
                self.word(&clause.value, Context::Word)?;
                self.put(" in ");
                for item in &clause.cases {
                    for (place, pattern) in item.patterns.iter().enumerate() {
                        self.put(if place == 0 { "(" } else { " | " });
                        self.word(pattern, Context::Word)?;
                    }
                    self.put(") ");
                    item.cmd.as_ref().map_or(Some(()), |list| self.list(list))?;
                    self.put(match item.post_action {
                        CaseItemPostAction::ExitCase => ";; ",
                        CaseItemPostAction::UnconditionallyExecuteNextCaseItem => ";& ",
                        CaseItemPostAction::ContinueEvaluatingCases => ";;& ",
                    });
                }
                self.put("esac");
                Some(())
            }
            CompoundCommand::IfClause(clause) => {
                self.body("if ", &clause.condition, "then ")?;
                self.list(&clause.then)?;
                for part in clause.elses.iter().flatten() {
                    match &part.condition {
                        Some(condition) => self.body("elif ", condition, "then ")?,
                        None => self.put("else "),
                    }
                    self.list(&part.body)?;
                }
                self.put("fi");
                Some(())
            }
            CompoundCommand::WhileClause(clause) => {
                self.body("while ", &clause.0, "do ")?;
                self.body("", &clause.1.list, "done")
            }
            CompoundCommand::UntilClause(clause) => {
                self.body("until ", &clause.0, "do ")?;
                self.body("", &clause.1.list, "done")
            }
            CompoundCommand::Coprocess(_) => None,
        }
    }

    fn body(&mut self, before: &str, list: &CompoundList, behind: &str) -> Option<()> {
        self.put(before);
        self.list(list)?;
        self.put(behind);
        Some(())
    }

    /// The blank keeps two parentheses apart that would be arithmetic together.
    fn subshell(&mut self, subshell: &SubshellCommand) -> Option<()> {
        self.body("( ", &subshell.list, ")")
    }

    /// A text of the closed list of forms that arithmetic is read by: it holds no quotes and no comments.
    fn arithmetic(&mut self, before: &str, text: &str, behind: &str) -> Option<()> {
        let mut open = 0_usize;
        for c in text.chars() {
            match c {
                '(' => open += 1,
                ')' => open = open.checked_sub(1)?,
                '\'' | '"' | '\\' | '`' | ';' => return None,
                _ => {}
            }
        }
        let text = text.replace('\n', " ");
        self.put(format_args!("{before}{text}{behind}"));
        (open == 0).then_some(())
    }

    /// Parentheses say what belongs together, whatever binds stronger.
    fn test(&mut self, test: &ExtendedTestExpr) -> Option<()> {
        match test {
            ExtendedTestExpr::And(left, right) => self.both(left, " && ", right),
            ExtendedTestExpr::Or(left, right) => self.both(left, " || ", right),
            ExtendedTestExpr::Not(inner) => {
                self.put("! ");
                self.enclosed(inner)
            }
            ExtendedTestExpr::Parenthesized(inner) => self.enclosed(inner),
            ExtendedTestExpr::UnaryTest(predicate, word) => {
                self.put(format_args!("{predicate} "));
                self.word(word, Context::Word)
            }
            ExtendedTestExpr::BinaryTest(predicate, left, right) => {
                use brush_parser::ast::BinaryPredicate as Binary;
                self.word(left, Context::Word)?;
                self.put(format_args!(" {predicate} "));
                let context = match predicate {
                    Binary::StringMatchesRegex | Binary::StringContainsSubstring => Context::Regex,
                    _ => Context::Word,
                };
                self.word(right, context)
            }
        }
    }

    fn both(&mut self, left: &ExtendedTestExpr, operator: &str, right: &ExtendedTestExpr) -> Option<()> {
        self.enclosed(left)?;
        self.put(operator);
        self.enclosed(right)
    }

    fn enclosed(&mut self, test: &ExtendedTestExpr) -> Option<()> {
        if let ExtendedTestExpr::Parenthesized(inner) = test {
            return self.enclosed(inner);
        }
        self.put("( ");
        self.test(test)?;
        self.put(" )");
        Some(())
    }

    fn simple(&mut self, simple: &SimpleCommand) -> Option<()> {
        let prefix = simple.prefix.iter().flat_map(|prefix| &prefix.0);
        let suffix = simple.suffix.iter().flat_map(|suffix| &suffix.0);
        let mut is_first = true;
        let mut apart = |writer: &mut Self| writer.put(if std::mem::take(&mut is_first) { "" } else { " " });
        for item in prefix {
            apart(self);
            match item {
                Item::AssignmentWord(assignment, word) => self.assignment(assignment, word)?,
                Item::IoRedirect(redirection) => self.redirection(redirection)?,
                Item::Word(word) => self.word(word, Context::Word)?,
                Item::ProcessSubstitution(kind, subshell) => self.process(kind, subshell)?,
            }
        }
        let Some(name) = &simple.word_or_name else {
            return simple.suffix.is_none().then_some(());
        };
        apart(self);
        self.word(name, Context::Word)?;
        let declares = super::walk::DECLARING.contains(&name.value.as_str());
        for item in suffix {
            apart(self);
            match item {
                Item::AssignmentWord(assignment, word) if declares => self.assignment(assignment, word)?,
                Item::AssignmentWord(_, word) | Item::Word(word) => self.word(word, Context::Word)?,
                Item::IoRedirect(redirection) => self.redirection(redirection)?,
                Item::ProcessSubstitution(kind, subshell) => self.process(kind, subshell)?,
            }
        }
        Some(())
    }

    fn assignment(&mut self, assignment: &Assignment, word: &Word) -> Option<()> {
        match &assignment.name {
            AssignmentName::VariableName(name) => self.name(name)?,
            AssignmentName::ArrayElementName(name, subscript) => {
                self.name(name)?;
                self.arithmetic("[", subscript, "]")?;
            }
        }
        self.put(if assignment.append { "+=" } else { "=" });
        match &assignment.value {
            AssignmentValue::Scalar(value) => {
                // The value stands at the end of the word; its own place is not recorded.
                let skipped = word.value.chars().count().checked_sub(value.value.chars().count())?;
                let start = self.start(word).map(|start| start + skipped);
                self.text(&value.value, Context::Word, start)
            }
            AssignmentValue::Array(elements) => {
                self.put("(");
                for (key, value) in elements {
                    self.put(' ');
                    if let Some(key) = key {
                        self.arithmetic("[", &key.value, "]=")?;
                    }
                    self.word(value, Context::Word)?;
                }
                self.put(" )");
                Some(())
            }
        }
    }

    fn process(&mut self, kind: &ProcessSubstitutionKind, subshell: &SubshellCommand) -> Option<()> {
        self.put(match kind {
            ProcessSubstitutionKind::Read => "<",
            ProcessSubstitutionKind::Write => ">",
        });
        self.subshell(subshell)
    }

    fn redirections(&mut self, list: Option<&RedirectList>) -> Option<()> {
        list.iter().flat_map(|list| &list.0).try_for_each(|redirection| {
            self.put(' ');
            self.redirection(redirection)
        })
    }

    fn redirection(&mut self, redirection: &IoRedirect) -> Option<()> {
        let descriptor = match redirection {
            IoRedirect::File(descriptor, ..)
            | IoRedirect::HereDocument(descriptor, _)
            | IoRedirect::HereString(descriptor, _) => *descriptor,
            IoRedirect::OutputAndError(..) => None,
        };
        self.put(descriptor.map_or_else(String::new, |descriptor| descriptor.to_string()));
        match redirection {
            IoRedirect::File(_, kind, target) => match target {
                IoFileRedirectTarget::Filename(word) => {
                    self.put(format_args!("{kind} "));
                    self.word(word, Context::Word)
                }
                // What stands there is a number, a dash or a plain name.
                IoFileRedirectTarget::Duplicate(word) => {
                    self.put(kind);
                    self.word(word, Context::Word)
                }
                IoFileRedirectTarget::Fd(number) => {
                    self.put(format_args!("{kind}{number}"));
                    Some(())
                }
                IoFileRedirectTarget::ProcessSubstitution(of, subshell) => {
                    self.put(format_args!("{kind} "));
                    self.process(of, subshell)
                }
            },
            IoRedirect::HereDocument(_, document) => self.document(document),
            IoRedirect::HereString(_, word) => {
                self.put("<<< ");
                self.word(word, Context::Word)
            }
            IoRedirect::OutputAndError(word, append) => {
                self.put(if *append { "&>> " } else { "&> " });
                self.word(word, Context::Word)
            }
        }
    }

    fn name(&mut self, name: &str) -> Option<()> {
        self.put(name);
        super::walk::is_name(name).then_some(())
    }
}
