//! Here-documents inside substitutions, in the one shape that agents write all the time:
//!
//! ```text
//! git commit -m "$(cat <<'EOF'
//! It's done.
//! EOF
//! )"
//! ```
//!
//! The parser cannot read them. Their text says nothing about what runs, so it is blanked before the parser sees the
//! line, and only where bash certainly reads a document there: nothing but plain words and closed quotes before it, a
//! plain command in it, a tag in quotes or a text without expansions, and an end that cannot be mistaken. Any other
//! stays as it is, and is refused later. Bash has read this shape as it stands since its version 4.

use std::borrow::Cow;

/// The text with the documents in it blanked: of as many characters, on as many lines.
pub(super) fn without_documents(text: &str) -> Cow<'_, str> {
    let mut visible = String::new();
    let mut kept = 0;
    let mut at = 0;
    while let Some((open, around)) = next_substitution(text, at) {
        let Some(found) = Enclosed::read(text, open, around) else {
            break;
        };
        visible.push_str(&text[kept..found.start]);
        let document = text[found.start..found.end].chars();
        visible.extend(document.map(|c| if c == '\n' { '\n' } else { ' ' }));
        kept = found.end;
        at = found.behind;
    }
    if kept == 0 {
        return Cow::Borrowed(text);
    }
    visible.push_str(&text[kept..]);
    Cow::Owned(visible)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Around {
    Nothing,
    Quotes,
}

/// The first `$` that stands outside of quotes or right behind an opening one, with nothing before it that could make
/// bash read it as something else. The search begins outside of quotes.
fn next_substitution(text: &str, from: usize) -> Option<(usize, Around)> {
    let mut quote = None;
    let mut before = ' ';
    for (offset, c) in text[from..].char_indices() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            (Some('\''), _) => {}
            (Some('"'), '$') if before == '"' => return Some((from + offset, Around::Quotes)),
            (Some(_), '$' | '`' | '\\') => return None,
            (Some(_), _) => {}
            (None, '$') => return Some((from + offset, Around::Nothing)),
            (None, c) if c.is_ascii_alphanumeric() || " \t\n-_./,:=+@%&|;>".contains(c) => {}
            (None, _) => return None,
        }
        before = c;
    }
    None
}

/// One document, by the places where it begins and ends.
struct Enclosed {
    /// Where `<<` stands.
    start: usize,
    /// Behind the line that ends it.
    end: usize,
    /// Behind the substitution and the quote around it.
    behind: usize,
}

impl Enclosed {
    /// Reads `$(command <<'TAG'`, the text, a line with the tag and a line that begins with `)`.
    fn read(text: &str, open: usize, around: Around) -> Option<Self> {
        let command = text[open..].strip_prefix("$(")?;
        let plain = |c: char| c.is_ascii_alphanumeric() || " \t-_./".contains(c);
        let after = command.trim_start_matches(plain).strip_prefix("<<")?;
        let start = text.len() - after.len() - 2;
        // A digit right before it would be a descriptor.
        if !text[..start].ends_with([' ', '\t']) {
            return None;
        }
        let (first, body) = after.split_once('\n')?;
        let written = first.trim_start_matches([' ', '\t']);
        let quoted = ['\'', '"']
            .iter()
            .find_map(|quote| written.strip_prefix(*quote)?.strip_suffix(*quote));
        let tag = quoted.unwrap_or(written);
        if tag.is_empty() || !tag.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return None;
        }
        let mut length = 0;
        for line in body.split_inclusive('\n') {
            length += line.len();
            if line.strip_suffix('\n') == Some(tag) {
                break;
            }
            // Inside a substitution a line that only begins with the tag may end the document to bash.
            let expands = quoted.is_none() && line.contains(['$', '`', '\\']);
            let is_control = |c: char| c.is_control() && !"\t\n".contains(c);
            if line.starts_with(tag) || expands || line.contains(is_control) {
                return None;
            }
        }
        let rest = &body[length..];
        let close = match around {
            Around::Nothing => ")",
            Around::Quotes => ")\"",
        };
        let behind = rest.trim_start_matches([' ', '\t']).strip_prefix(close)?;
        Some(Self {
            start,
            end: text.len() - rest.len(),
            behind: text.len() - behind.len(),
        })
    }
}
