//! Arithmetic texts, read for names only.
//!
//! Bash evaluates the *value* of a name in arithmetic as an expression again, and a subscript in
//! that value may run commands (`x='a[$(id)]'; ((x))`). So the question here is which names are
//! read, which are set to a number, and whether anything else stands in the text.

use super::word::{self, Context, Nested, Part};

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

const PUT_TOGETHER: &str = "a name in arithmetic that is put together";

const OPERATORS: &str = " \t\n+-*/%<>=!&|^~?:,()[]";

pub(super) fn parse(text: &str) -> Arithmetic {
    let parts = word::parse(text, Context::Body);
    let mut found = Arithmetic {
        expanded: parts.referenced,
        read: Vec::new(),
        only_reads: !text.contains(['=', '$', '`', '\\', '"', '\'']) && !text.contains("++") && !text.contains("--"),
        set: Vec::new(),
        programs: parts.programs,
        odd: parts.odd,
    };
    if !found.programs.is_empty() {
        found.odd.push("arithmetic over the output of a command");
    }
    for inner in &parts.arithmetic {
        let nested = parse(inner);
        found.expanded.extend(nested.expanded);
        found.read.extend(nested.read);
        found.set.extend(nested.set);
        found.programs.extend(nested.programs);
        found.odd.extend(nested.odd);
    }
    if !parts.assigned.is_empty() {
        found.odd.push("an assignment inside arithmetic");
    }
    let mut before = "";
    for part in &parts.parts {
        match part {
            Part::Text(text) | Part::Quoted(text) => {
                // `${x:-a}5` is the variable `a5`.
                if before.ends_with(of_name) && text.starts_with(of_name) {
                    found.odd.push(PUT_TOGETHER);
                }
                names(text, &mut found);
                before = text;
            }
            // `a$x` reads the variable `a5`, which nobody has looked at.
            Part::Expansion(_) if before.ends_with(of_name) => {
                found.odd.push(PUT_TOGETHER);
                before = "";
            }
            Part::Expansion(_) => before = "",
        }
    }
    found
}

fn of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn names(text: &str, found: &mut Arithmetic) {
    let chars: Vec<char> = text.chars().collect();
    let mut at = 0;
    while let Some(c) = chars.get(at) {
        let end = at
            + chars[at..]
                .iter()
                .take_while(|c| of_name(**c) || "#@".contains(**c))
                .count();
        if c.is_ascii_alphabetic() || *c == '_' {
            let name: String = chars[at..end].iter().collect();
            if name.contains(['#', '@']) {
                found.odd.push("arithmetic that is not understood");
            }
            if is_set(&chars[end..]) {
                found.set.push(name);
            } else {
                found.read.push(name);
            }
            at = end;
        } else if c.is_ascii_digit() {
            at = end;
        } else {
            if !OPERATORS.contains(*c) {
                found.odd.push("arithmetic that is not understood");
            }
            at += 1;
        }
    }
}

/// Whether a plain `=` follows: only that sets a name without reading it first.
fn is_set(after: &[char]) -> bool {
    let mut rest = after.iter().skip_while(|c| " \t\n".contains(**c));
    rest.next() == Some(&'=') && rest.next() != Some(&'=')
}
