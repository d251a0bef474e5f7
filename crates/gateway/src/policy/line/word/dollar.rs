//! What follows a dollar sign in a word.

use super::{Context, Expansion, Mark, PROCESS, Part, Quotes, Reader, Until, escapes};

/// Transformations that only change or describe a value. `P` is missing on purpose: it expands the
/// value as a prompt, and prompts run commands.
const TRANSFORMATIONS: &str = "UuLQEAaKk";

/// Behind a name, what leaves nothing but the digits of its value.
pub(in crate::policy::line) const DIGITS_ONLY: &str = "//[^0-9]/}";

const LINE_END: &str = "the end of a line in an expansion";

/// Whether a word follows what was read of `${…}`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operand {
    Follows,
    None,
}

impl Reader<'_> {
    pub(super) fn dollar(&mut self, quotes: Quotes) {
        match (self.peek(1), quotes) {
            (Some('\''), Quotes::None) => self.ansi_quoted(),
            (Some('"'), Quotes::None) => {
                // What it becomes depends on message catalogues.
                self.odd("a translated string");
                self.expansion(Expansion::Value);
                self.at += 1;
                self.double_quoted();
            }
            (Some('('), _) => self.parenthesis(),
            (Some('{'), _) => self.brace(quotes),
            (Some('['), _) => self.stop("`$[`"),
            (Some(c), _) if is_name_start(c) => {
                self.at += 1;
                let name = self.name();
                self.restate(&format!("${{{name}}}"));
                self.expansion(Expansion::Value);
                if quotes == Quotes::None {
                    self.marks.push(Mark::Name);
                }
            }
            (Some(c), _) if is_special(c) => {
                // Inside of quotes bash sees a substitution in `$$(` when it looks for where they end.
                self.restate(&if c == '$' { "${$}".to_owned() } else { format!("${c}") });
                self.expansion(if "#?$".contains(c) {
                    Expansion::Number
                } else {
                    Expansion::Value
                });
                self.at += 2;
            }
            (Some(_) | None, Quotes::None) => {
                self.restate(match self.context {
                    // The end of what is searched.
                    Context::Regex => "$",
                    Context::Word | Context::Body => "'$'",
                });
                self.text('$');
            }
            (Some(_) | None, Quotes::Double) => {
                self.restate("\\$");
                self.quoted("$");
                self.at += 1;
            }
        }
    }

    fn ansi_quoted(&mut self) {
        let start = self.at + 2;
        let mut end = start;
        while let Some(c) = self.chars.get(end) {
            match c {
                '\'' => break,
                '\\' => end += 2,
                _ => end += 1,
            }
        }
        if end >= self.chars.len() {
            return self.stop("a quote without its end");
        }
        match escapes::decode(&self.chars[start..end]) {
            Some(text) => {
                self.restate_quoted(&text);
                self.quoted(&text);
            }
            None => {
                self.odd("an escape in `$'…'` that is not understood");
                self.expansion(Expansion::Value);
            }
        }
        self.at = end + 1;
    }

    /// `$(…)` and `$((…))`. Where the two look alike bash decides by trying; that case is odd.
    fn parenthesis(&mut self) {
        let open = self.at + 1;
        let Some(close) = self.skip_parenthesis(open) else {
            return self.stop("a substitution without its end");
        };
        if self.chars.get(open + 1) == Some(&'(') {
            if self.skip_parenthesis(open + 1) == close.checked_sub(1) {
                let text: String = self.chars[open + 2..close - 1].iter().collect();
                // Bash counts them all, also those in an expansion.
                if !has_balanced_parentheses(&text) {
                    self.odd("a parenthesis in arithmetic without the other");
                }
                self.restate(&format!("$(({}))", text.replace('\n', " ")));
                self.out.arithmetic.push(text);
                self.expansion(Expansion::Number);
                self.at = close + 1;
                return;
            }
            self.odd("`$((` that is no arithmetic");
        }
        self.program(self.chars[open + 1..close].iter().collect(), Some(open + 1));
        self.at = close + 1;
    }

    fn brace(&mut self, quotes: Quotes) {
        let start = self.at;
        if self.parameter_expansion() == Operand::Follows {
            self.restate_from(start);
            self.operands += 1;
            self.operand(quotes);
            self.operands -= 1;
            self.marks.push(Mark::Other);
        } else {
            self.restate_from(start);
        }
    }

    /// Reads `${…}`, up to where its operand begins if it has one.
    fn parameter_expansion(&mut self) -> Operand {
        self.at += 2;
        if self.peek(0) == Some('#') && self.peek(1).is_some_and(|c| c != '}') {
            self.expansion(Expansion::Number);
            self.at += 1;
            if self.parameter().is_some() && self.peek(0) == Some('}') {
                self.at += 1;
            } else {
                self.stop("a length that is not understood");
            }
            return Operand::None;
        }
        if self.chars[self.at..].starts_with(&['$', '}']) {
            self.expansion(Expansion::Number);
            self.at += 2;
            return Operand::None;
        }
        self.expansion(Expansion::Value);
        let Some(name) = self.parameter() else {
            self.stop("a parameter expansion that is not understood");
            return Operand::None;
        };
        if self.keeps_digits_only(&name) {
            self.at += DIGITS_ONLY.len();
            self.out.parts.pop();
            self.out.parts.push(Part::Expansion(Expansion::Digits));
            return Operand::None;
        }
        let colon = usize::from(self.peek(0) == Some(':'));
        match (self.peek(0), self.peek(colon)) {
            (Some('}'), _) => self.at += 1,
            (_, Some('-' | '?' | '+')) => {
                self.at += colon + 1;
                return Operand::Follows;
            }
            (_, Some('=')) => {
                self.at += colon + 1;
                self.out.assigned.push(name);
                return Operand::Follows;
            }
            (Some(':'), _) => self.substring(),
            (Some('@'), _) => self.transformation(),
            (Some('#' | '%' | '/' | '^' | ','), _) => {
                self.at += 1;
                return Operand::Follows;
            }
            (Some(_) | None, _) => self.stop("a parameter expansion that is not understood"),
        }
        Operand::None
    }

    /// Whether one value stands before `//[^0-9]/}`, and no list of values.
    fn keeps_digits_only(&self, name: &str) -> bool {
        let is_one = name.chars().all(is_name_part) && self.chars[self.at - 1] != ']';
        is_one
            && DIGITS_ONLY
                .chars()
                .eq(self.chars[self.at..].iter().copied().take(DIGITS_ONLY.len()))
    }

    /// A name, number or special parameter with an optional subscript.
    fn parameter(&mut self) -> Option<String> {
        let first = self.peek(0)?;
        if is_name_start(first) {
            let name = self.name();
            if self.peek(0) == Some('[') {
                self.subscript()?;
            }
            return Some(name);
        }
        if first.is_ascii_digit() {
            let start = self.at;
            while self.peek(0).is_some_and(|c| c.is_ascii_digit()) {
                self.at += 1;
            }
            return Some(self.chars[start..self.at].iter().collect());
        }
        // `${!x}` reads the variable whose name `x` holds, and that name may hold a subscript that
        // runs commands. It stays unknown here, and with it `${!x*}` and `${!x[@]}`.
        if "@*#?-$".contains(first) {
            self.at += 1;
            return Some(first.to_string());
        }
        None
    }

    fn subscript(&mut self) -> Option<()> {
        let start = self.at + 1;
        let length = self.chars[start..].iter().position(|c| *c == ']')?;
        let text: String = self.chars[start..start + length].iter().collect();
        if text.contains(['[', '\'', '"', '\\', '`', '(', ')']) {
            return None;
        }
        if text != "@" && text != "*" {
            self.out.arithmetic.push(text);
        }
        self.at = start + length + 1;
        Some(())
    }

    fn substring(&mut self) {
        let start = self.at + 1;
        let Some(length) = self.chars[start..].iter().position(|c| *c == '}') else {
            return self.stop("a substring without its end");
        };
        let text: String = self.chars[start..start + length].iter().collect();
        if text.contains(['{', '\'', '"', '\\', '`', '$'])
            || !has_balanced_parentheses(&text)
            || text.contains("<(")
            || text.contains(">(")
        {
            return self.stop("a substring that is not understood");
        }
        self.out.arithmetic.push(text);
        self.at = start + length + 1;
    }

    fn transformation(&mut self) {
        let known = self.peek(1).is_some_and(|c| TRANSFORMATIONS.contains(c));
        if known && self.peek(2) == Some('}') {
            self.at += 3;
        } else {
            self.stop("a transformation that is not understood");
        }
    }

    /// The word after the operator of `${x:-…}` and its kin. Inside double quotes, what quotes mean
    /// there differs between shells and versions, so quotes are odd.
    fn operand(&mut self, quotes: Quotes) {
        match quotes {
            Quotes::None => {
                let start = self.at;
                self.unquoted(Until::Brace, |_| false);
                if self.chars[start..self.at].contains(&'\n') {
                    self.odd(LINE_END);
                }
            }
            Quotes::Double => loop {
                match self.peek(0) {
                    None | Some('}') => break,
                    Some('\'' | '"' | '\\') => {
                        return self.stop("quotes in an expansion inside quotes");
                    }
                    // A pattern, its replacement and a message are read as if no quotes stood around them.
                    Some('<' | '>') if self.peek(1) == Some('(') => return self.stop(PROCESS),
                    Some('\n') => return self.stop(LINE_END),
                    Some('$') if !self.is_bare_dollar() => self.dollar(quotes),
                    Some('`') => self.backquoted(quotes),
                    Some(c) => {
                        self.restate(&c.to_string());
                        self.quoted(&c.to_string());
                        self.at += 1;
                    }
                }
            },
        }
        if self.peek(0) == Some('}') {
            self.restate("}");
            self.at += 1;
        } else {
            self.stop("an expansion without its end");
        }
    }

    /// Whether the dollar sign here means itself to every reader: at the end of an operand, or before a blank in it.
    fn is_bare_dollar(&self) -> bool {
        matches!(self.peek(1), Some('}' | ' '))
    }

    fn name(&mut self) -> String {
        let start = self.at;
        while self.peek(0).is_some_and(is_name_part) {
            self.at += 1;
        }
        self.chars[start..self.at].iter().collect()
    }
}

/// Whether each parenthesis has its other one, in order.
pub(in crate::policy::line) fn has_balanced_parentheses(text: &str) -> bool {
    let open = text.chars().try_fold(0_usize, |open, c| match c {
        '(' => Some(open + 1),
        ')' => open.checked_sub(1),
        _ => Some(open),
    });
    open == Some(0)
}

fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

pub(super) fn is_name_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_special(c: char) -> bool {
    c.is_ascii_digit() || "@*#?-$!".contains(c)
}
