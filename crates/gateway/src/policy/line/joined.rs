//! The text with its continued lines joined.
//!
//! Bash takes a backslash away together with the end of the line behind it, before it looks at anything else: to it
//! `$(\⏎(` opens arithmetic and `x\⏎[0]` is an element. A search of the text as it is written misses both, so whoever
//! looks for characters that mean something side by side looks here.
//!
//! More is joined than bash joins: also in single quotes, in comments and in quoted documents, and a row of backslashes
//! goes as a whole, since those in backquotes lose some before they are read. So whatever stands side by side to bash
//! does so here, and what is searched for is found too often at worst. A search that would *allow* something must not
//! rely on this text.

use std::borrow::Cow;

pub(super) fn joined(text: &str) -> Cow<'_, str> {
    if !text.contains("\\\n") {
        return Cow::Borrowed(text);
    }
    let mut lines = text.split('\n').peekable();
    let mut whole = String::with_capacity(text.len());
    while let Some(line) = lines.next() {
        let kept = line.trim_end_matches('\\');
        match lines.peek() {
            Some(_) if kept.len() < line.len() => whole.push_str(kept),
            Some(_) => {
                whole.push_str(line);
                whole.push('\n');
            }
            None => whole.push_str(line),
        }
    }
    Cow::Owned(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_bash_may_join_is_joined() {
        for (text, expected) in [
            ("ls", "ls"),
            ("ls\n", "ls\n"),
            ("ls \\\n a", "ls  a"),
            ("$(\\\n(1", "$((1"),
            ("(\\\n\\\n(", "(("),
            ("x\\\\\n[", "x["),
            ("a\\b\\", "a\\b\\"),
            ("\\\n", ""),
            ("a\n\\\nb", "a\nb"),
            ("é\\\né", "éé"),
        ] {
            assert_eq!(joined(text), expected, "{text:?}");
        }
    }
}
