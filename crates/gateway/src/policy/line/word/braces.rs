//! Braces. Bash expands them before anything else, and reads what they become as if it were written there.

use super::Part;

/// Whether bash may make several words of one, or one anew.
pub(in crate::policy::line) fn may_expand(parts: &[Part]) -> bool {
    let unquoted = unquoted(parts);
    let list = unquoted.contains(',') || unquoted.contains("..");
    unquoted.contains('{') && unquoted.contains('}') && list
}

/// What braces may put together that does not stand in the word.
pub(super) fn made(parts: &[Part]) -> Option<&'static str> {
    if !may_expand(parts) {
        return None;
    }
    let unquoted = unquoted(parts);
    // `{$,}{x@P}` becomes `${x@P}`, and `{$,}[x]` arithmetic.
    if unquoted.contains("$,") || unquoted.contains("$}") {
        return Some("a dollar sign at the end of an alternative in braces");
    }
    let chars: Vec<char> = unquoted.chars().collect();
    // A backslash and a backquote stand between `Z` and `a`.
    let is_mixed = |text: &[char]| match text {
        ['{', first, '.', '.', last] => {
            first.is_alphabetic()
                && last.is_alphabetic()
                && !(first.is_ascii_lowercase() && last.is_ascii_lowercase())
                && !(first.is_ascii_uppercase() && last.is_ascii_uppercase())
        }
        _ => false,
    };
    let mixed = chars.windows(5).any(is_mixed);
    mixed.then_some("a sequence of letters in braces that goes over other characters")
}

fn unquoted(parts: &[Part]) -> String {
    let texts = parts.iter().map(|part| match part {
        Part::Text(text) => text.as_str(),
        Part::Quoted(_) | Part::Expansion(_) => "",
    });
    texts.collect()
}
