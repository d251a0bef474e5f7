//! Arithmetic texts: which names they read and set.
//!
//! Bash expands such a text and evaluates what comes out, the *values* of names included, as expressions of their own;
//! a subscript in a value may run commands (`x='a[$(id)]'; ((x))`). So what an expansion leaves in the text must
//! certainly be a number, or a piece of one. Only forms that are known for that are read here; everything else is odd,
//! since bash has many ways to make letters out of digits: `${x/1/a}` is the name `a`, and so is `${x@a}` of an array.

use super::word::{self, Context, DIGITS_ONLY, Nested};

#[derive(Debug, Default)]
pub(super) struct Arithmetic {
    /// Names whose values stand in the text when bash reads it: `$x`.
    pub(super) expanded: Vec<String>,
    pub(super) read: Vec<String>,
    /// Whether nothing in it can set a name: no `=`, no `++`, and no value that could be one.
    pub(super) only_reads: bool,
    pub(super) set: Vec<String>,
    pub(super) programs: Vec<Nested>,
    pub(super) odd: Vec<&'static str>,
}

/// Where a text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// `((…))`, `$((…))`, subscripts and substrings: expanded as if in double quotes.
    Expression,
    /// Beside `-eq` and its kin in `[[ … ]]`: a word first, in which a tilde becomes a directory.
    Operand,
}

/// What is said of values and expansions alike.
pub(super) const MAY_BE_TEXT: &str = "arithmetic over a value that may be no number (`n=${x//[^0-9]/}` gives its digits another name, for use in `$((n + 1))`)";

const PUT_TOGETHER: &str = "a name in arithmetic that is put together";
const NOT_UNDERSTOOD: &str = "arithmetic that is not understood";

const OPERATORS: &str = " \t\n+-*/%<>=!&|^~?:,()[]";

pub(super) fn parse(text: &str, place: Place) -> Arithmetic {
    let mut reader = Reader {
        rest: text,
        out: Arithmetic {
            only_reads: !text.contains(['=', '$', '`', '\\', '"', '\''])
                && !text.contains("++")
                && !text.contains("--"),
            ..Arithmetic::default()
        },
    };
    reader.programs(text);
    if !reader.out.programs.is_empty() {
        reader.odd("arithmetic over the output of a command");
    }
    if place == Place::Operand && text.contains('~') {
        reader.odd("a tilde in a comparison of numbers");
    }
    reader.expression();
    reader.out
}

struct Reader<'a> {
    rest: &'a str,
    out: Arithmetic,
}

impl<'a> Reader<'a> {
    /// Everything the text would run, however deep: the line is refused for it, and says what it was.
    fn programs(&mut self, text: &str) {
        let parts = word::parse(text, Context::Body);
        self.out.programs.extend(parts.programs);
        self.out.odd.extend(parts.odd);
        if !parts.assigned.is_empty() {
            self.odd("an assignment inside arithmetic");
        }
        for inner in &parts.arithmetic {
            self.programs(inner);
        }
    }

    fn expression(&mut self) {
        while let Some(c) = self.rest.chars().next() {
            if c == '$' {
                self.expansion();
            } else if of_name(c) {
                self.name_or_number(c);
            } else {
                if !OPERATORS.contains(c) {
                    self.odd(NOT_UNDERSTOOD);
                }
                self.rest = &self.rest[c.len_utf8()..];
            }
        }
    }

    fn name_or_number(&mut self, first: char) {
        let word = self.take(|c| of_name(c) || "#@".contains(c));
        // `a$x` reads the variable `a5`, which nobody has looked at.
        if self.rest.starts_with(['$', '`']) && word.ends_with(of_name) {
            self.odd(PUT_TOGETHER);
        }
        // `16#ff` and the like.
        if first.is_ascii_digit() {
            return;
        }
        if word.contains(['#', '@']) {
            self.odd(NOT_UNDERSTOOD);
        }
        if is_set(self.rest) {
            self.out.set.push(word.to_owned());
        } else {
            self.out.read.push(word.to_owned());
        }
    }

    /// What begins with a dollar sign: it must leave digits, perhaps with a sign, or nothing.
    fn expansion(&mut self) {
        self.rest = &self.rest[1..];
        if self.eat("{") {
            return self.braces();
        }
        if self.rest.starts_with("((") {
            return self.nested();
        }
        if self.eat("#") || self.eat("?") || self.eat("$") {
            return;
        }
        match self.name() {
            Some(name) => self.out.expanded.push(name.to_owned()),
            None => self.stop(MAY_BE_TEXT),
        }
    }

    /// `$((…))`, of which the first parenthesis comes next. In what is read here nothing hides one, and all else is odd.
    fn nested(&mut self) {
        let mut open = 0_usize;
        for (at, c) in self.rest.char_indices() {
            match c {
                '(' => open += 1,
                ')' => open -= 1,
                _ => {}
            }
            if open == 0 {
                let text = &self.rest[1..at];
                self.rest = &self.rest[at + 1..];
                return match text.strip_prefix('(').and_then(|text| text.strip_suffix(')')) {
                    Some(text) => self.inner(text),
                    None => self.stop(NOT_UNDERSTOOD),
                };
            }
        }
        self.stop(NOT_UNDERSTOOD);
    }

    /// `${…}`, from behind its brace.
    fn braces(&mut self) {
        // A length is a number, whatever it is the length of.
        if self.eat("#}") {
            return;
        }
        if self.eat("#") {
            let is_list = self.eat("@") || self.eat("*");
            if !is_list && self.name().is_none() {
                return self.stop(MAY_BE_TEXT);
            }
            if self.rest.starts_with("[@]") || self.rest.starts_with("[*]") {
                self.rest = &self.rest[3..];
            } else {
                self.subscript();
            }
            return self.end();
        }
        let Some(name) = self.name() else {
            return self.stop(MAY_BE_TEXT);
        };
        if self.eat(DIGITS_ONLY) {
            return;
        }
        self.subscript();
        self.out.expanded.push(name.to_owned());
        if self.eat(":-") || self.eat("-") || self.eat(":+") || self.eat("+") {
            self.number();
        } else if self.rest.starts_with([':', '#', '%']) {
            self.piece();
        }
        self.end();
    }

    /// The word behind `${x:-`: a number as it is written, or one more expansion. Letters could become part of a name.
    fn number(&mut self) {
        if self.rest.starts_with('$') {
            return self.expansion();
        }
        let is_negative = self.eat("-");
        if self.eat("0x") || self.eat("0X") {
            self.take(|c| c.is_ascii_hexdigit());
        } else if self.take(|c| c.is_ascii_digit()).is_empty() && is_negative {
            self.stop(MAY_BE_TEXT);
        }
    }

    /// A piece of a number, which is digits, a sign or nothing: `${x:1:2}`, `${x#0}`, `${x%%5*}`.
    fn piece(&mut self) {
        if self.eat(":") {
            let text = self.take(|c| c != '}');
            match text.contains(['$', '?']) || text.starts_with('=') {
                true => self.stop(MAY_BE_TEXT),
                false => self.inner(text),
            }
        } else {
            self.take(|c| "#%".contains(c));
            self.take(|c| c.is_ascii_digit() || "*?".contains(c));
        }
    }

    fn subscript(&mut self) {
        if self.eat("[") {
            let text = self.take(|c| c != ']');
            match text {
                "@" | "*" => self.stop(MAY_BE_TEXT),
                text => self.inner(text),
            }
            if !self.eat("]") {
                self.stop(MAY_BE_TEXT);
            }
        }
    }

    /// A text that bash evaluates on its own.
    fn inner(&mut self, text: &str) {
        let mut inner = Reader {
            rest: text,
            out: std::mem::take(&mut self.out),
        };
        inner.expression();
        self.out = inner.out;
    }

    fn end(&mut self) {
        if !self.eat("}") {
            self.stop(MAY_BE_TEXT);
        }
    }

    /// A name, or the number of a parameter.
    fn name(&mut self) -> Option<&'a str> {
        let first = self.rest.chars().next()?;
        if first.is_ascii_digit() {
            return Some(self.take(|c| c.is_ascii_digit()));
        }
        of_name(first).then(|| self.take(of_name))
    }

    fn take(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !wanted(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn eat(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn odd(&mut self, what: &'static str) {
        self.out.odd.push(what);
    }

    /// Gives up on the rest, which is odd and therefore refused.
    fn stop(&mut self, what: &'static str) {
        self.odd(what);
        self.rest = "";
    }
}

fn of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether a plain `=` follows: only that sets a name without reading it first.
fn is_set(after: &str) -> bool {
    let after = after.trim_start_matches([' ', '\t', '\n']);
    after.starts_with('=') && !after.starts_with("==")
}
