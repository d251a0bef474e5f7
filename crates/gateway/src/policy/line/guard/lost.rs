//! What the tokenizer loses of a text. Nobody sees it later, and bash does, so such a text is not read.

use brush_parser::Token;

use super::{LineError, from_parser};
use crate::policy::line::joined::joined;

pub(super) fn check(text: &str, tokens: &[Token]) -> Result<(), LineError> {
    check_continuations(text, tokens)?;
    check_comments(text, tokens)?;
    check_parentheses(text, tokens)?;
    check_expansions(text, tokens)
}

/// The tokenizer joins lines behind a backslash in `$'…'` too, where bash keeps both. And in a substitution it misses
/// comments behind two blanks: one that ends in a backslash then takes the next line with it, which bash runs.
fn check_continuations(text: &str, tokens: &[Token]) -> Result<(), LineError> {
    if !text.contains("\\\n") {
        return Ok(());
    }
    let chars: Vec<char> = text.chars().collect();
    for (token, written) in as_written(&chars, tokens) {
        if written.contains("\\\n") && token.to_str() != written {
            let as_one = joined(&written);
            let what = if as_one.contains("$'") {
                "a continued line in `$'…'`"
            } else if as_one.contains('#') && as_one.contains(['$', '`']) {
                "a line that goes on behind a backslash beside `#` in a substitution (put it on one line, without comments)"
            } else {
                continue;
            };
            return Err(LineError::Unreadable {
                what,
                position: from_parser(&token.location().start),
            });
        }
    }
    Ok(())
}

/// The tokens that stand where they say, each with what is written there. One begins before the continued lines in front of it.
fn as_written<'t>(chars: &[char], tokens: &'t [Token]) -> impl Iterator<Item = (&'t Token, String)> {
    in_place(tokens).map(|token| {
        let span = token.location();
        let mut written = chars.get(span.start.index..span.end.index).unwrap_or_default();
        while let ['\\', '\n', rest @ ..] | [' ' | '\t', rest @ ..] = written {
            written = rest;
        }
        (token, written.iter().collect())
    })
}

/// The tokens that stand where they say. Behind the operator of a here-document come tag, body and tag again, and a body
/// is kept whole, but not where it stands.
fn in_place(tokens: &[Token]) -> impl Iterator<Item = &Token> {
    let mut since_document = usize::MAX;
    tokens.iter().filter(move |token| {
        since_document = since_document.saturating_add(1);
        let is_of_body = matches!(since_document, 2 | 3);
        if !is_of_body && matches!(token.to_str(), "<<" | "<<-") {
            since_document = 0;
        }
        !is_of_body
    })
}

/// The tokenizer leaves comments out in arithmetic too, where bash has none and expands what stands there:
/// a line whose arithmetic lost one is not read.
fn check_comments(text: &str, tokens: &[Token]) -> Result<(), LineError> {
    if !text.contains('#') || !joined(text).contains("((") {
        return Ok(());
    }
    let chars: Vec<char> = text.chars().collect();
    let mut open = 0_usize;
    let mut tokens = tokens.iter();
    while let Some(token) = tokens.next() {
        let span = token.location();
        let written = chars.get(span.start.index..span.end.index).unwrap_or_default();
        let kept = token.to_str().chars().filter(|c| *c == '#').count();
        let has_lost_some = written.iter().filter(|c| **c == '#').count() != kept;
        let is_arithmetic = match token {
            Token::Word(word, _) => open >= 2 || word.contains("(("),
            Token::Operator(operator, _) => {
                match operator.as_str() {
                    "(" => open += 1,
                    ")" => open = open.saturating_sub(1),
                    // Tag, body and tag again: a body is kept whole, but not where it stands.
                    "<<" | "<<-" => drop(tokens.nth(2)),
                    _ => {}
                }
                open >= 2
            }
        };
        if is_arithmetic && has_lost_some {
            return Err(LineError::Unreadable {
                what: "a comment in arithmetic",
                position: from_parser(&span.start),
            });
        }
    }
    Ok(())
}

/// The tokenizer leaves out the blanks that an expansion begins with, and of several in it all but one. To bash `${ x}` is none, and
/// from 5.3 on a substitution; and what a variable is compared with, or replaced by, is another text with one blank less.
fn check_expansions(text: &str, tokens: &[Token]) -> Result<(), LineError> {
    if !text.contains("${") {
        return Ok(());
    }
    let chars: Vec<char> = text.chars().collect();
    for (token, written) in as_written(&chars, tokens) {
        let (written, kept) = (joined(&written), joined(token.to_str()));
        if expansions(&written) == expansions(&kept) {
            continue;
        }
        // Behind the start of a document the tokenizer loses all that an expansion holds.
        let what = match kept.contains("${}") {
            true => "an expansion behind `<<` on the same line (write it before that)",
            false => "blanks in an expansion that would be lost",
        };
        return Err(LineError::Unreadable {
            what,
            position: from_parser(&token.location().start),
        });
    }
    Ok(())
}

/// What stands in `${…}` in a text, as far as counting braces tells; where it may not, all that follows.
fn expansions(text: &str) -> String {
    let mut inside = String::new();
    let mut open = 0_usize;
    let mut is_unsure = false;
    let mut before = ' ';
    for c in text.chars() {
        match c {
            '{' if open > 0 || before == '$' => open += 1,
            '}' if !is_unsure => open = open.saturating_sub(1),
            '\'' | '"' | '\\' | '`' => is_unsure |= open > 0,
            '(' if before == '$' => is_unsure |= open > 0,
            _ => {}
        }
        if open > 0 {
            inside.push(c);
        }
        before = c;
    }
    inside
}

/// To bash a word goes on behind the parenthesis that ends a list or a process substitution: `<(ls)#$(id)` holds no
/// comment, and in `a=(x)ls id` the command is `id`. The tokenizer begins anew there; in a substitution it also leaves out
/// what it takes for a comment, so that nobody sees it later.
fn check_parentheses(text: &str, tokens: &[Token]) -> Result<(), LineError> {
    if !text.contains(')') {
        return Ok(());
    }
    let chars: Vec<char> = text.chars().collect();
    for (token, written) in as_written(&chars, tokens) {
        let has_lost_some = written.matches('#').count() != token.to_str().matches('#').count();
        if has_lost_some && joined(&written).contains(")#") {
            return Err(LineError::Unreadable {
                what: "text right behind a parenthesis",
                position: from_parser(&token.location().start),
            });
        }
    }
    let mut in_list = false;
    let mut before: Option<&Token> = None;
    for token in tokens {
        let span = token.location();
        match token.to_str() {
            "(" => {
                let assigns = |before: &&Token| {
                    let between = chars.get(before.location().end.index..span.start.index);
                    let between: String = between.unwrap_or_default().iter().collect();
                    before.to_str().ends_with('=') && joined(&between).is_empty()
                };
                in_list = before.as_ref().is_some_and(assigns);
            }
            ")" => {
                let mut rest = chars.get(span.end.index..).unwrap_or_default();
                while let ['\\', '\n', after @ ..] = rest {
                    rest = after;
                }
                let next = rest.first();
                let goes_on = in_list && next.is_some_and(|c| !" \t\n;&|()<>".contains(*c));
                if goes_on || next == Some(&'#') {
                    return Err(LineError::Unreadable {
                        what: "text right behind a parenthesis",
                        position: from_parser(&span.end),
                    });
                }
                in_list = false;
            }
            _ => {}
        }
        before = Some(token);
    }
    Ok(())
}
