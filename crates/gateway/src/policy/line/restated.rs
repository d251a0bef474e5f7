//! A line written anew from what was read of it, for bash to run.
//!
//! Two readers that get the same text may still disagree about it: over a comment, a continued line, the place of a
//! here-document, a quote. So bash is not given the text that was checked but what the check made of it: one command after
//! the other, without comments, continued lines, here-documents and backquotes, each word in one plain form. What our reader
//! did not see is not there. [`restate`] reads the new text once more, and it must come to the same commands.
//!
//! Bash writes what stands in a substitution down for itself and reads that once more, at every level, and what it writes is
//! not always what it read. So a substitution holds nothing but the name of a function, in which its commands stand:
//!
//! ```text
//! git commit -m "$(cat note; date)"        __substitution_1 () {
//!                                          cat note; date
//!                                          }
//!                                          git commit -m "$( __substitution_1 )"
//! ```

mod loops;
#[cfg(test)]
mod tests;
mod words;

use std::fmt::Display;

use brush_parser::ast::{
    AndOr, AndOrList, Assignment, AssignmentName, AssignmentValue, CaseItemPostAction, Command,
    CommandPrefixOrSuffixItem as Item, CompoundCommand, CompoundList, CompoundListItem, ExtendedTestExpr,
    ForClauseCommand, IoFileRedirectTarget, IoRedirect, Pipeline, PipelineTimed, ProcessSubstitutionKind, Program,
    RedirectList, SeparatorOperator, SimpleCommand, SubshellCommand, Word,
};

use super::documents::Documents;
use super::guard::{self, Limits};
use super::position::{self, Position};
use super::word::{Context, has_balanced_parentheses};
use super::{Arg, CommandUse, Line, Unclear, read};
use loops::Loops;

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

/// Writes a line anew, or tells which part of it is unclear or has no plain form.
pub fn restate(text: &str, limits: Limits) -> Result<Restated, Unclear> {
    let at_start = |what| Unclear {
        what,
        position: Position::START,
    };
    let before = read(text, limits).map_err(|_| at_start("this line"))?;
    if let Some(unclear) = before.unclear.first() {
        return Err(unclear.clone());
    }
    if let Some(position) = names_our_own(text, &before) {
        let what = "a name that begins as those of our own functions do";
        return Err(Unclear { what, position });
    }
    let documents = Documents::read(text);
    let program = guard::parse(&documents, limits).map_err(|_| at_start("this line"))?;
    let source = Source {
        written: text.chars().collect(),
        visible: documents.visible().chars().collect(),
    };
    let mut writer = Writer {
        whole: Some(&source),
        limits,
        depth: 0,
        at: 0,
        loops: Loops::Counted,
        functions: Vec::new(),
        out: String::with_capacity(text.len() + 32),
    };
    if let Err(what) = writer.program(&program) {
        let position = position::Source::new(text).at(writer.at);
        return Err(Unclear { what, position });
    }
    let text = writer.functions.concat() + &writer.out;
    if text.len() > PLAIN_BYTES_MAX {
        return Err(at_start("a line that is too long in its plain form"));
    }
    let limits = Limits {
        text_bytes_max: PLAIN_BYTES_MAX,
        openings_max: PLAIN_OPENINGS_MAX,
        ..limits
    };
    let line = read(&text, limits).map_err(|_| at_start(READ_DIFFERENTLY))?;
    match first_difference(&before, &line) {
        Some(unclear) => Err(unclear),
        None => Ok(Restated { text, line }),
    }
}

/// How the names of the functions begin that hold the commands of substitutions.
const FUNCTION: &str = "__substitution_";

/// Less than one argument of a program may have.
const PLAIN_BYTES_MAX: usize = 120 * 1024;

/// A plain `$x` is written as one that opens; none of these is left open.
const PLAIN_OPENINGS_MAX: usize = 2048;

const READ_DIFFERENTLY: &str = "what is read differently once it is written in a plain form";

/// Where a line may speak of a function in which the commands of a substitution stand, to call it, to define it or to take it
/// away: anywhere in its text, or in a word whose quotes hide the name.
fn names_our_own(text: &str, line: &Line) -> Option<Position> {
    if let Some(at) = text.find(FUNCTION) {
        return Some(position::Source::new(text).at(text[..at].chars().count()));
    }
    let defined = line.functions.iter().map(|it| (it.name.as_str(), it.position));
    let words = line.commands.iter().flat_map(|command| {
        let words = std::iter::once(&command.name).chain(&command.args);
        words.map(|word| (word.prefix(), command.position))
    });
    let mut all = defined.chain(words);
    all.find(|(name, _)| name.contains(FUNCTION))
        .map(|(_, position)| position)
}

/// Where two readings of a line do not come to the same commands, assignments and functions but for those of substitutions, or
/// the other one is unclear. How a word that is computed is written may differ.
fn first_difference(one: &Line, other: &Line) -> Option<Unclear> {
    let words = |command: &CommandUse| -> Vec<Option<String>> {
        let words = std::iter::once(&command.name).chain(&command.args);
        words.map(Arg::known).map(|known| known.map(str::to_owned)).collect()
    };
    let differs = |position| Unclear {
        what: READ_DIFFERENTLY,
        position,
    };
    if !other.unclear.is_empty() {
        return Some(differs(Position::START));
    }
    let mut commands: Vec<_> = other
        .commands
        .iter()
        .filter(|command| !command.name.prefix().starts_with(FUNCTION))
        .map(words)
        .collect();
    for command in &one.commands {
        let wanted = words(command);
        match commands.iter().position(|found| *found == wanted) {
            Some(place) => drop(commands.remove(place)),
            None => return Some(differs(command.position)),
        }
    }
    let assigned = |line: &Line| {
        let all = line.assignments.iter();
        sorted(all.map(|it| (it.name.clone(), it.value.clone())))
    };
    let functions = |line: &Line| {
        let all = line.functions.iter().map(|it| it.name.clone());
        sorted(all.filter(|name| !name.starts_with(FUNCTION)))
    };
    let is_same = commands.is_empty() && assigned(one) == assigned(other) && functions(one) == functions(other);
    (!is_same).then(|| differs(Position::START))
}

/// Whether commands may look at the parameters, or change them.
fn may_use_parameters(body: &str) -> bool {
    let is_parameter = |c: char| c.is_ascii_digit() || "@*#".contains(c);
    let follows = |mark: &str| body.split(mark).skip(1).any(|behind| behind.starts_with(is_parameter));
    follows("$") || follows("${") || ["set", "shift", "getopts"].iter().any(|word| body.contains(word))
}

fn sorted<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut items: Vec<_> = items.collect();
    items.sort();
    items
}

/// The whole text, and what the parser saw of it: of as many characters.
struct Source {
    written: Vec<char>,
    visible: Vec<char>,
}

/// How much of a loop is looked at for its head.
const LOOP_HEAD_MAX: usize = 256;

struct Writer<'a> {
    /// The text whose tree is written; none in substitutions, whose documents are found from outside.
    whole: Option<&'a Source>,
    limits: Limits,
    depth: usize,
    /// Where the part begins that is being written.
    at: usize,
    loops: Loops,
    /// The commands of substitutions, each as the definition of a function.
    functions: Vec<String>,
    out: String,
}

/// What has no plain form, if something has none.
type Written = Result<(), &'static str>;

impl Writer<'_> {
    fn put(&mut self, text: impl Display) {
        use std::fmt::Write as _;
        // Writing into a string does not fail.
        let _ = write!(self.out, "{text}");
    }

    fn program(&mut self, program: &Program) -> Written {
        for line in &program.complete_commands {
            self.list(line)?;
            let end = self.out.strip_suffix("; ").unwrap_or(self.out.trim_end()).len();
            self.out.truncate(end);
            self.put('\n');
        }
        Ok(())
    }

    /// What was one line to bash stays one: behind an error it leaves the rest of it.
    fn list(&mut self, list: &CompoundList) -> Written {
        for CompoundListItem(and_or, separator) in &list.0 {
            self.and_or(and_or)?;
            self.put(match separator {
                SeparatorOperator::Async => " & ",
                SeparatorOperator::Sequence => "; ",
            });
        }
        Ok(())
    }

    fn and_or(&mut self, list: &AndOrList) -> Written {
        self.pipeline(&list.first)?;
        for item in &list.additional {
            let (operator, pipeline) = match item {
                AndOr::And(pipeline) => (" && ", pipeline),
                AndOr::Or(pipeline) => (" || ", pipeline),
            };
            self.put(operator);
            self.pipeline(pipeline)?;
        }
        Ok(())
    }

    fn pipeline(&mut self, pipeline: &Pipeline) -> Written {
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
        Ok(())
    }

    fn command(&mut self, command: &Command) -> Written {
        match command {
            Command::Simple(simple) => self.simple(simple),
            Command::Compound(compound, redirections) => {
                self.compound(compound)?;
                self.redirections(redirections.as_ref())
            }
            Command::Function(function) => {
                self.begin(&function.fname);
                let name = &function.fname.value;
                self.put(name);
                // Bash lets functions have names that variables cannot have.
                if !super::walk::is_name(&name.replace('-', "_")) {
                    return Err("the name of a function that is no plain word");
                }
                self.put(" () ");
                let around = self.loops.of_function();
                let around = std::mem::replace(&mut self.loops, around);
                self.compound(&function.body.0)?;
                self.loops = around;
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

    fn compound(&mut self, compound: &CompoundCommand) -> Written {
        match compound {
            CompoundCommand::Arithmetic(command) => {
                self.begin_at(command.loc.start.index);
                self.arithmetic("((", &command.expr.value, "))")
            }
            CompoundCommand::ArithmeticForClause(clause) => {
                self.begin_at(clause.loc.start.index);
                let parts = [
                    ("for ((", &clause.initializer),
                    (";", &clause.condition),
                    (";", &clause.updater),
                ];
                for (before, part) in parts {
                    self.arithmetic(before, part.as_ref().map_or("", |part| &part.value), "")?;
                }
                self.put("))");
                self.repeated("; do ", &clause.body.list, "done")
            }
            CompoundCommand::BraceGroup(group) => self.body("{ ", &group.list, "}"),
            CompoundCommand::Subshell(subshell) => self.subshell(subshell),
            CompoundCommand::ForClause(clause) => {
                self.begin_at(clause.loc.start.index);
                self.put("for ");
                self.name(&clause.variable_name)?;
                self.put(" in");
                let Some(values) = &clause.values else {
                    self.values_not_kept(clause)?;
                    return self.repeated("; do ", &clause.body.list, "done");
                };
                for value in values {
                    self.put(' ');
                    self.word(value, Context::Word)?;
                }
                self.repeated("; do ", &clause.body.list, "done")
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
                    item.cmd.as_ref().map_or(Ok(()), |list| self.list(list))?;
                    self.put(match item.post_action {
                        CaseItemPostAction::ExitCase => ";; ",
                        CaseItemPostAction::UnconditionallyExecuteNextCaseItem => ";& ",
                        CaseItemPostAction::ContinueEvaluatingCases => ";;& ",
                    });
                }
                self.put("esac");
                Ok(())
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
                Ok(())
            }
            CompoundCommand::WhileClause(clause) => {
                self.repeated("while ", &clause.0, "do ")?;
                self.repeated("", &clause.1.list, "done")
            }
            CompoundCommand::UntilClause(clause) => {
                self.repeated("until ", &clause.0, "do ")?;
                self.repeated("", &clause.1.list, "done")
            }
            CompoundCommand::Coprocess(_) => Err("`coproc`"),
        }
    }

    /// The parser does not tell `for x`, which goes over the parameters, from `for x in` with nothing behind it.
    fn values_not_kept(&mut self, clause: &ForClauseCommand) -> Written {
        const UNKNOWN: &str = "a loop without its values";
        let visible = &self.whole.ok_or(UNKNOWN)?.visible;
        let written: String = visible.iter().skip(self.at).take(LOOP_HEAD_MAX).collect();
        let rest = written.strip_prefix("for ").ok_or(UNKNOWN)?.trim_start_matches(' ');
        let behind = rest.strip_prefix(&*clause.variable_name).ok_or(UNKNOWN)?;
        let behind = behind.trim_start_matches(' ');
        if behind.starts_with(';') {
            self.put(" \"$@\"");
            return Ok(());
        }
        let is_empty = behind
            .strip_prefix("in")
            .is_some_and(|rest| rest.trim_start_matches(' ').starts_with(';'));
        if is_empty { Ok(()) } else { Err(UNKNOWN) }
    }

    fn body(&mut self, before: &str, list: &CompoundList, behind: &str) -> Written {
        self.put(before);
        self.list(list)?;
        self.put(behind);
        Ok(())
    }

    /// What a loop goes through again and again.
    fn repeated(&mut self, before: &str, list: &CompoundList, behind: &str) -> Written {
        let around = self.loops;
        self.loops = around.entered();
        self.body(before, list, behind)?;
        self.loops = around;
        Ok(())
    }

    /// The blank keeps two parentheses apart that would be arithmetic together.
    fn subshell(&mut self, subshell: &SubshellCommand) -> Written {
        self.body("( ", &subshell.list, ")")
    }

    /// A text of the closed list of forms that arithmetic is read by: it holds no quotes and no comments.
    fn arithmetic(&mut self, before: &str, text: &str, behind: &str) -> Written {
        if text.contains(['\'', '"', '\\', '`', ';']) {
            return Err("quotes or `;` in arithmetic");
        }
        if !has_balanced_parentheses(text) {
            return Err("a parenthesis in arithmetic without the other");
        }
        let text = text.replace('\n', " ");
        self.put(format_args!("{before}{text}{behind}"));
        Ok(())
    }

    /// Parentheses say what belongs together, whatever binds stronger.
    fn test(&mut self, test: &ExtendedTestExpr) -> Written {
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

    fn both(&mut self, left: &ExtendedTestExpr, operator: &str, right: &ExtendedTestExpr) -> Written {
        self.enclosed(left)?;
        self.put(operator);
        self.enclosed(right)
    }

    fn enclosed(&mut self, test: &ExtendedTestExpr) -> Written {
        if let ExtendedTestExpr::Parenthesized(inner) = test {
            return self.enclosed(inner);
        }
        self.put("( ");
        self.test(test)?;
        self.put(" )");
        Ok(())
    }

    fn simple(&mut self, simple: &SimpleCommand) -> Written {
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
        let mut declares = false;
        if let Some(name) = &simple.word_or_name {
            apart(self);
            self.word(name, Context::Word)?;
            declares = super::walk::DECLARING.contains(&name.value.as_str());
        }
        for item in suffix {
            apart(self);
            match item {
                Item::AssignmentWord(assignment, word) if declares => self.assignment(assignment, word)?,
                Item::AssignmentWord(_, word) | Item::Word(word) => self.word(word, Context::Word)?,
                Item::IoRedirect(redirection) => self.redirection(redirection)?,
                Item::ProcessSubstitution(kind, subshell) => self.process(kind, subshell)?,
            }
        }
        self.loops.may_hold(simple)
    }

    fn assignment(&mut self, assignment: &Assignment, word: &Word) -> Written {
        self.begin(word);
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
                let skipped = word.value.chars().count().saturating_sub(value.value.chars().count());
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
                Ok(())
            }
        }
    }

    fn process(&mut self, kind: &ProcessSubstitutionKind, subshell: &SubshellCommand) -> Written {
        self.put(match kind {
            ProcessSubstitutionKind::Read => "<",
            ProcessSubstitutionKind::Write => ">",
        });
        let around = std::mem::take(&mut self.out);
        let loops = std::mem::replace(&mut self.loops, Loops::Own(0));
        self.list(&subshell.list)?;
        self.loops = loops;
        let body = std::mem::replace(&mut self.out, around);
        self.call(&body);
        Ok(())
    }

    /// Writes the call of a function with these commands, in parentheses. It has the parameters that they would have.
    fn call(&mut self, body: &str) {
        let number = self.functions.len() + 1;
        let body = body.trim_end();
        self.functions.push(format!("{FUNCTION}{number} () {{\n{body}\n}}\n"));
        let parameters = if may_use_parameters(body) { " \"$@\"" } else { "" };
        self.put(format_args!("( {FUNCTION}{number}{parameters} )"));
    }

    fn redirections(&mut self, list: Option<&RedirectList>) -> Written {
        list.iter().flat_map(|list| &list.0).try_for_each(|redirection| {
            self.put(' ');
            self.redirection(redirection)
        })
    }

    fn redirection(&mut self, redirection: &IoRedirect) -> Written {
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
                    Ok(())
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

    fn name(&mut self, name: &str) -> Written {
        self.put(name);
        match super::walk::is_name(name) {
            true => Ok(()),
            false => Err("the name of a variable that is no plain word"),
        }
    }
}
