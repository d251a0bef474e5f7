//! Braces. Bash expands them before anything else, and reads what they become as if it were written there.

use std::collections::HashSet;

use super::Part;
use super::dollar::is_name_part;

/// What of a word matters to the text that its braces become, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// A character outside of quotes.
    Live(char),
    /// A brace in the operand of an expansion, where bash counts in its own way.
    Hidden,
    /// `$x`: a name that nothing ends.
    Name,
    /// Quotes or another expansion.
    Other,
}

/// Whether bash may make several words of one, or one anew.
pub(in crate::policy::line) fn may_expand(parts: &[Part]) -> bool {
    let unquoted = unquoted(parts);
    let list = unquoted.contains(',') || unquoted.contains("..");
    unquoted.contains('{') && unquoted.contains('}') && list
}

/// What braces may put together that does not stand in the word.
pub(super) fn made(parts: &[Part], marks: &[Mark]) -> Option<&'static str> {
    if !may_expand(parts) {
        return None;
    }
    if may_lengthen_names(marks) {
        return Some("a variable without braces beside an alternative that may add to its name");
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

/// Whether a name may be another one once the braces are expanded: `$x{1,2}` is `$x1 $x2`, and `{a,$x}b` is `ab $xb`.
fn may_lengthen_names(marks: &[Mark]) -> bool {
    let behind = |at: usize| match marks[at] {
        Mark::Name => Some(at + 1),
        Mark::Live(_) | Mark::Hidden | Mark::Other => None,
    };
    let is_open = |at: &usize| matches!(marks.get(*at), Some(Mark::Live('{' | ',' | '}') | Mark::Hidden));
    let mut open: Vec<usize> = (0..marks.len()).filter_map(behind).filter(is_open).collect();
    if open.is_empty() {
        return false;
    }
    let Some(groups) = Groups::of(marks) else {
        return true;
    };
    let mut seen = HashSet::new();
    while let Some(at) = open.pop() {
        if !seen.insert(at) {
            continue;
        }
        match marks.get(at) {
            Some(Mark::Live('{')) => match groups.around(at) {
                Some(group) if group.starts.len() > 1 => open.extend(&group.starts),
                // A sequence, or no group at all.
                Some(group) if marks[at..group.end].windows(2).any(|two| two == [Mark::Live('.'); 2]) => return true,
                Some(_) | None => {}
            },
            Some(Mark::Live(',')) => open.extend(groups.around(at).map(|group| group.end + 1)),
            Some(Mark::Live('}')) => open.push(at + 1),
            Some(Mark::Live(c)) if is_name_part(*c) => return true,
            Some(Mark::Live(_) | Mark::Name | Mark::Other) | None => {}
            Some(Mark::Hidden) => return true,
        }
    }
    false
}

/// What stands between two braces.
struct Group {
    /// Where its alternatives begin.
    starts: Vec<usize>,
    /// Where its closing brace is.
    end: usize,
}

struct Groups {
    all: Vec<Group>,
    /// For each mark that is a brace or a comma, the group that it is a part of.
    owners: Vec<Option<usize>>,
}

impl Groups {
    /// Nothing where bash may count the braces in another way: one is missing, or means itself as in `{}`.
    fn of(marks: &[Mark]) -> Option<Self> {
        let is_empty = |two: &[Mark]| two == [Mark::Live('{'), Mark::Live('}')];
        if marks.contains(&Mark::Hidden) || marks.windows(2).any(is_empty) {
            return None;
        }
        let mut all: Vec<Group> = Vec::new();
        let mut around = Vec::new();
        let mut owners = vec![None; marks.len()];
        for (at, mark) in marks.iter().enumerate() {
            match mark {
                Mark::Live('{') => {
                    around.push(all.len());
                    owners[at] = Some(all.len());
                    all.push(Group {
                        starts: vec![at + 1],
                        end: at,
                    });
                }
                Mark::Live(',') => {
                    owners[at] = around.last().copied();
                    if let Some(group) = around.last() {
                        all[*group].starts.push(at + 1);
                    }
                }
                Mark::Live('}') => {
                    let group = around.pop()?;
                    owners[at] = Some(group);
                    all[group].end = at;
                }
                Mark::Live(_) | Mark::Hidden | Mark::Name | Mark::Other => {}
            }
        }
        around.is_empty().then_some(Self { all, owners })
    }

    /// The group that the brace or comma here belongs to.
    fn around(&self, at: usize) -> Option<&Group> {
        self.all.get(self.owners.get(at).copied().flatten()?)
    }
}

fn unquoted(parts: &[Part]) -> String {
    let texts = parts.iter().map(|part| match part {
        Part::Text(text) => text.as_str(),
        Part::Quoted(_) | Part::Expansion(_) => "",
    });
    texts.collect()
}
