//! Takes one raw word apart by bash's own quoting rules.
//!
//! The grammar comes from the parser, the words do not: inside words the parser and bash disagree in
//! places (`\$'…'`, single quotes in `"${x:-…}"`), and a word read differently from bash hides a
//! command. So this reader follows bash, takes a narrow view, and reports whatever it does not fully
//! understand as *odd*. An unquoted operator inside a word is odd too: it means that the two readers
//! cut the line in different places.

mod braces;
mod dollar;
mod escapes;
mod skip;

use braces::Mark;

pub(super) use braces::may_expand as may_expand_braces;
pub(super) use dollar::{DIGITS_ONLY, has_balanced_parentheses};

/// What a word is made of and what it would run.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) parts: Vec<Part>,
    /// Command substitutions, with the index of their first character in the word when the text
    /// is verbatim.
    pub(super) programs: Vec<Nested>,
    /// Arithmetic that bash evaluates while it expands the word, subscripts included.
    pub(super) arithmetic: Vec<String>,
    /// Variables set by `${x:=…}`.
    pub(super) assigned: Vec<String>,
    /// What this reader does not understand.
    pub(super) odd: Vec<&'static str>,
    /// The word in one plain form. Where it is odd, this is of no use.
    pub(super) restated: Vec<Restated>,
}

/// A piece of a word that is written anew.
#[derive(Debug)]
pub(super) enum Restated {
    Text(String),
    /// A substitution, by its place among the programs.
    Program(usize),
}

#[derive(Debug)]
pub(super) struct Nested {
    pub(super) text: String,
    pub(super) index: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Unquoted text: globs, braces and a leading tilde are live.
    Text(String),
    /// Text whose every character stands for itself.
    Quoted(String),
    /// Known at run time only. Quoted, it stays one word.
    Expansion(Expansion),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expansion {
    /// `$x`, `${…}`, `$(…)`.
    Value,
    /// `$((…))` and `${#x}`: always a number.
    Number,
    /// `${x//[^0-9]/}`: digits, or nothing at all.
    Digits,
}

/// The contexts a raw word can stand in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Context {
    /// An ordinary word.
    Word,
    /// A regular expression after `=~`, where `|` and parentheses are text.
    Regex,
    /// The body of a here-document that expands, or an arithmetic text: quotes are text.
    Body,
}

pub(super) fn parse(word: &str, context: Context) -> Parts {
    let chars: Vec<char> = word.chars().collect();
    let mut reader = Reader {
        chars: &chars,
        at: 0,
        context,
        operands: 0,
        marks: Vec::new(),
        out: Parts::default(),
    };
    match context {
        Context::Word => {
            reader.unquoted(Until::End, |c| OPERATORS.contains(c));
            let made = braces::made(&reader.out.parts, &reader.marks);
            reader.out.odd.extend(made);
        }
        Context::Regex => {
            reader.unquoted(Until::End, |c| ";&<>\n".contains(c));
            if !are_plain_groups(&chars) {
                reader.odd("a group in an expression that bash may end in another place");
            }
        }
        Context::Body => reader.body(),
    }
    reader.out
}

/// Whether a word is one pair of double quotes around everything, with nothing inside that becomes many words. Looking at both
/// ends is not enough: `"."$x""` and `"./$@"`. What a substitution runs has quotes and parameters of its own, and
/// whatever it prints stays in the word.
pub(super) fn is_one_in_quotes(word: &str) -> bool {
    let programs = parse(word, Context::Word).programs;
    let run: Option<Vec<_>> = programs
        .iter()
        .map(|program| program.index.map(|start| start..start + program.text.chars().count()))
        .collect();
    let Some(run) = run else { return false };
    let is_its_own = |(index, _): &(usize, char)| !run.iter().any(|program| program.contains(index));
    let own: String = word.chars().enumerate().filter(is_its_own).map(|(_, c)| c).collect();
    own.strip_prefix('"')
        .and_then(|inner| inner.strip_suffix('"'))
        .is_some_and(|inner| !inner.contains(['"', '@']))
}

const OPERATORS: &str = ";&|()<> \t\n";

const PROCESS: &str = "a process substitution inside a word";

/// Whether bash finds the ends of groups in an expression where we do: it counts parentheses, and knows quotes but no expansions
/// that hold more than a name.
fn are_plain_groups(expression: &[char]) -> bool {
    if !expression.contains(&'(') && !expression.contains(&')') {
        return true;
    }
    let mut open = 0_usize;
    let mut rest = expression;
    while let [c, after @ ..] = rest {
        rest = match (c, after) {
            ('\\', [_, after @ ..]) => after,
            ('(', _) => {
                open += 1;
                after
            }
            (')', _) if open > 0 => {
                open -= 1;
                after
            }
            (')' | '`' | '\\', _) | ('$', ['(' | '\'', ..]) => return false,
            ('$', ['{', name @ ..]) => {
                let length = name
                    .iter()
                    .take_while(|c| c.is_ascii_alphanumeric() || **c == '_')
                    .count();
                match name.get(length) {
                    Some('}') => &name[length + 1..],
                    Some(_) | None => return false,
                }
            }
            (c, _) if c.is_whitespace() => return false,
            (_, _) => after,
        };
    }
    open == 0
}

/// A text of which every character stands for itself. Two arrows side by side would be looked at for a here-document.
/// No line ends in a word: behind what is no syntax to it bash goes on with the next line, wherever that is to us. And no
/// backslash stands outside of quotes: in a list inside a substitution bash takes `\'` for a quote and `\(` for an operator.
/// Nor does `$'…'` hold a quote, for which bash writes `\'` when it writes such a list down for itself.
pub(super) fn single_quoted(text: &str) -> String {
    if text.is_empty() {
        return "''".to_owned();
    }
    let between_quotes = |piece: &str| match escapes::encode(piece) {
        Some(escaped) => escaped,
        None if piece.is_empty() => String::new(),
        None => format!("'{}'", piece.replace("<<", "<''<").replace("<<", "<''<")),
    };
    let pieces: Vec<_> = text.split('\'').map(between_quotes).collect();
    pieces.join(r#""'""#)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    End,
    Brace,
}

struct Reader<'a> {
    chars: &'a [char],
    at: usize,
    context: Context,
    /// In how many operands of expansions the reader is.
    operands: usize,
    marks: Vec<Mark>,
    out: Parts,
}

impl Reader<'_> {
    fn unquoted(&mut self, until: Until, refused: impl Fn(char) -> bool + Copy) {
        while let Some(c) = self.peek(0) {
            match c {
                '}' if until == Until::Brace => return,
                '\\' => self.escaped(),
                '\'' => self.single_quoted(),
                '"' => self.double_quoted(),
                '$' => self.dollar(Quotes::None),
                '`' => self.backquoted(Quotes::None),
                '<' | '>' if self.peek(1) == Some('(') => {
                    self.odd(PROCESS);
                    self.text(c);
                }
                _ => {
                    if refused(c) {
                        self.odd("text that bash may split in another place");
                    }
                    self.restate_unquoted(c);
                    self.text(c);
                }
            }
        }
    }

    /// Text in which quotes are ordinary characters: here-documents and arithmetic.
    fn body(&mut self) {
        while let Some(c) = self.peek(0) {
            match c {
                '\\' => match self.peek(1) {
                    Some(next @ ('$' | '`' | '\\')) => {
                        self.restate(&format!("\\{next}"));
                        self.quoted(&next.to_string());
                        self.at += 2;
                    }
                    Some('\n') => {
                        self.odd("a continued line in a here-document");
                        self.at += 2;
                    }
                    Some(_) | None => {
                        self.restate("\\\\");
                        self.text(c);
                    }
                },
                '$' => self.dollar(Quotes::Double),
                '`' => self.backquoted(Quotes::Double),
                '"' => {
                    self.restate("\\\"");
                    self.text(c);
                }
                _ => {
                    self.restate_between_quotes(c);
                    self.text(c);
                }
            }
        }
    }

    fn escaped(&mut self) {
        match self.peek(1) {
            Some('\n') => {}
            Some(c) => {
                // In an expression `\w` means something.
                match self.context {
                    Context::Regex => self.restate(&format!("\\{c}")),
                    Context::Word | Context::Body => self.restate_quoted(&c.to_string()),
                }
                self.quoted(&c.to_string());
            }
            None => self.odd("a backslash at the end of a word"),
        }
        self.at += 2;
    }

    fn single_quoted(&mut self) {
        let start = self.at + 1;
        match (start..self.chars.len()).find(|i| self.chars[*i] == '\'') {
            Some(end) => {
                let text: String = self.chars[start..end].iter().collect();
                self.restate_quoted(&text);
                self.quoted(&text);
                self.at = end + 1;
            }
            None => self.stop("a quote without its end"),
        }
    }

    fn double_quoted(&mut self) {
        self.at += 1;
        self.restate("\"");
        self.quoted("");
        loop {
            match self.peek(0) {
                None => return self.stop("a quote without its end"),
                Some('"') => {
                    self.restate("\"");
                    self.at += 1;
                    return;
                }
                Some('\\') => {
                    match self.peek(1) {
                        Some('\n') => {}
                        Some(next @ ('$' | '`' | '"' | '\\')) => {
                            self.restate(&format!("\\{next}"));
                            self.quoted(&next.to_string());
                        }
                        Some(next) => {
                            self.restate(&format!("\\\\{next}"));
                            self.quoted(&format!("\\{next}"));
                        }
                        None => return self.stop("a quote without its end"),
                    }
                    self.at += 2;
                }
                Some('$') => self.dollar(Quotes::Double),
                Some('`') => self.backquoted(Quotes::Double),
                Some(c) => {
                    self.restate_between_quotes(c);
                    self.quoted(&c.to_string());
                    self.at += 1;
                }
            }
        }
    }

    /// An old-style substitution: a backslash before `$`, a backquote or a backslash goes away before
    /// the text is read as a program.
    fn backquoted(&mut self, quotes: Quotes) {
        let start = self.at + 1;
        let mut text = String::new();
        let mut verbatim = true;
        let mut at = start;
        loop {
            match self.chars.get(at) {
                None => return self.stop("a backquote without its end"),
                Some('`') => break,
                Some('\\') => {
                    verbatim = false;
                    match self.chars.get(at + 1) {
                        Some(c @ ('$' | '`' | '\\')) => text.push(*c),
                        Some(c) => {
                            text.push('\\');
                            text.push(*c);
                        }
                        None => return self.stop("a backquote without its end"),
                    }
                    at += 2;
                }
                Some(c) => {
                    text.push(*c);
                    at += 1;
                }
            }
        }
        if quotes == Quotes::Double && text.contains(['"', '\\']) {
            self.odd("quotes in backquotes inside quotes");
        }
        self.program(text, Some(start).filter(|_| verbatim));
        self.at = at + 1;
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn text(&mut self, c: char) {
        self.marks.push(match (self.operands, c) {
            (0, _) => Mark::Live(c),
            (_, '{') => Mark::Hidden,
            (_, _) => Mark::Other,
        });
        match self.out.parts.last_mut() {
            Some(Part::Text(text)) => text.push(c),
            Some(Part::Quoted(_) | Part::Expansion(_)) | None => {
                self.out.parts.push(Part::Text(c.to_string()));
            }
        }
        self.at += 1;
    }

    fn quoted(&mut self, added: &str) {
        self.marks.push(Mark::Other);
        match self.out.parts.last_mut() {
            Some(Part::Quoted(text)) => text.push_str(added),
            Some(Part::Text(_) | Part::Expansion(_)) | None => {
                self.out.parts.push(Part::Quoted(added.to_owned()));
            }
        }
    }

    fn expansion(&mut self, expansion: Expansion) {
        self.marks.push(Mark::Other);
        self.out.parts.push(Part::Expansion(expansion));
    }

    fn program(&mut self, text: String, index: Option<usize>) {
        self.out.restated.push(Restated::Program(self.out.programs.len()));
        self.out.programs.push(Nested { text, index });
        self.expansion(Expansion::Value);
    }

    fn restate(&mut self, added: &str) {
        match self.out.restated.last_mut() {
            Some(Restated::Text(text)) => text.push_str(added),
            Some(Restated::Program(_)) | None => self.out.restated.push(Restated::Text(added.to_owned())),
        }
    }

    /// Outside of double quotes.
    fn restate_quoted(&mut self, text: &str) {
        self.restate(&single_quoted(text));
    }

    /// What is a blank or a letter beyond ASCII is the locale's to say, but in an expression.
    fn restate_unquoted(&mut self, c: char) {
        match c.is_ascii() || self.context == Context::Regex {
            true => self.restate(&c.to_string()),
            false => self.restate_quoted(&c.to_string()),
        }
    }

    /// Inside of double quotes, which are left for a moment between two arrows and at the end of a line, as in
    /// [`single_quoted`].
    fn restate_between_quotes(&mut self, c: char) {
        let is_behind_another =
            || matches!(self.out.restated.last(), Some(Restated::Text(text)) if text.ends_with('<'));
        match c {
            '<' if is_behind_another() => self.restate("\"\"<"),
            '\n' => self.restate(r#""$'\n'""#),
            _ => self.restate(&c.to_string()),
        }
    }

    /// What stands from a place up to here, in which nothing can be read in two ways.
    fn restate_from(&mut self, start: usize) {
        let written: String = self.chars[start..self.at].iter().collect();
        self.restate(&written.replace('\n', " "));
    }

    fn odd(&mut self, what: &'static str) {
        self.out.odd.push(what);
    }

    /// Gives up on the rest of the word, which is odd and therefore refused.
    fn stop(&mut self, what: &'static str) {
        self.odd(what);
        self.at = self.chars.len();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    None,
    Double,
}
