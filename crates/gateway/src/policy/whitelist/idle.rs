//! Rules that cover nothing, whatever is asked: who wrote one believes otherwise.

use super::{Matcher, SPECIAL, WhitelistRule, cautions};
use crate::policy::allowlist::is_launcher;

impl WhitelistRule {
    /// The word for which no command is ever covered by this rule, as far as its pattern tells. A rule that is off
    /// takes away whatever it matches, and is never idle.
    pub fn idle(&self) -> Option<String> {
        let Matcher::Pattern { regex, exact, .. } = &self.matcher else {
            return None;
        };
        if !self.enabled {
            return None;
        }
        let words = first_words(regex.as_str());
        let (name, args) = words.split_first()?;
        if is_launcher(name) {
            return Some(name.clone());
        }
        let refused = args.iter().find(|arg| !cautions::allow_word(name, arg))?;
        (!exact).then(|| refused.clone())
    }
}

/// The words that every command begins with that the pattern matches: its text up to the first sign that means more
/// than itself. What is cut short by that sign counts as letters of options only, which stay what they are.
fn first_words(pattern: &str) -> Vec<String> {
    let (text, is_cut) = literal(pattern);
    let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    let is_letters = |word: &String| word.starts_with('-') && !word.starts_with("--");
    if is_cut && !words.last().is_some_and(is_letters) {
        words.pop();
    }
    words
}

/// The text that every command begins with that the pattern matches.
pub(super) fn first_text(pattern: &str) -> String {
    literal(pattern).0
}

/// That text, and whether a sign that means more than itself ends it.
fn literal(pattern: &str) -> (String, bool) {
    if pattern.contains(['|', '\'']) || pattern.contains("(?") {
        return (String::new(), true);
    }
    let mut text = String::new();
    let mut is_cut = false;
    let mut chars = pattern.strip_prefix('^').unwrap_or(pattern).chars().peekable();
    while let Some(c) = chars.next() {
        let literal = match c {
            '\\' => chars.next().filter(char::is_ascii_punctuation),
            c if SPECIAL.contains(c) => None,
            c => Some(c),
        };
        match literal {
            // It may be missing, or be there many times.
            Some(_) if chars.peek().is_some_and(|next| "*+?{".contains(*next)) => {
                is_cut = true;
                break;
            }
            Some(literal) => text.push(literal),
            None => {
                is_cut = c != '$';
                break;
            }
        }
    }
    (text, is_cut)
}

#[cfg(test)]
mod tests {
    use super::super::{RuleText, Source};
    use super::*;

    fn idle(pattern: &str, enabled: bool) -> Option<String> {
        let text = RuleText {
            pattern,
            reason: "",
            enabled,
            source: Source::Global,
            matches: &[],
            not_matches: &[],
        };
        WhitelistRule::new(&text).expect(pattern).idle()
    }

    #[test]
    fn a_rule_that_can_never_cover_anything_is_known() {
        for (pattern, word) in [
            ("^sed -n", "-n"),
            ("sed -n", "-n"),
            ("^sed -n ", "-n"),
            ("^sed -n.* x", "-n"),
            ("^sed -[a-z]*n", ""),
            ("^git diff --output=x", "--output=x"),
            ("^find \\. -delete", "-delete"),
            ("^env$", "env"),
            ("^sudo ls$", "sudo"),
            ("^xargs ", "xargs"),
        ] {
            assert_eq!(idle(pattern, true).unwrap_or_default(), word, "{pattern}");
            assert_eq!(idle(pattern, false), None, "{pattern}");
        }
        for pattern in [
            "^sed -n 1p x$",
            "^sed",
            "^sed -n?",
            "^sed( -n)?",
            "^sed -n|^ls",
            "^git diff --out.*",
            "^git status",
            "^envsubst",
            "^env.*",
            "^(env|ls)",
            "^ls -n",
            ".*",
            "",
        ] {
            assert_eq!(idle(pattern, true), None, "{pattern}");
        }
    }
}
