//! Braces. Bash expands them before anything else, and reads what they become as if it were written there.

use super::Part;

/// Whether bash may make several words of one, or one anew.
pub(in crate::policy::line) fn may_expand(parts: &[Part]) -> bool {
    let unquoted = unquoted(parts);
    let list = unquoted.contains(',') || unquoted.contains("..");
    unquoted.contains('{') && unquoted.contains('}') && list
}

fn unquoted(parts: &[Part]) -> String {
    let texts = parts.iter().map(|part| match part {
        Part::Text(text) => text.as_str(),
        Part::Quoted(_) | Part::Expansion(_) => "",
    });
    texts.collect()
}
