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
//! line, and only where bash certainly reads a document there: a plain command in it, a tag in quotes or a text without
//! expansions, and an end that cannot be mistaken. Any other stays as it is, and is refused later. Bash has read this
//! shape as it stands since its version 4.

/// What stands around the substitution.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Around {
    Nothing,
    Quotes,
}

/// One document, by the places where it begins and ends.
pub(super) struct Enclosed {
    /// Where `<<` stands.
    pub(super) start: usize,
    /// Behind the line that ends it.
    pub(super) end: usize,
    /// Behind the substitution and the quote around it.
    pub(super) behind: usize,
}

impl Enclosed {
    /// Reads `$(command <<'TAG'`, the text, a line with the tag and a line that begins with `)`.
    pub(super) fn read(text: &str, open: usize, around: Around) -> Option<Self> {
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
            // Inside a substitution a line that only begins with the tag ends the document to bash where it also has
            // the parenthesis that ends the substitution.
            let may_end = line.starts_with(tag) && line.contains(')');
            let expands = quoted.is_none() && line.contains(['$', '`', '\\']);
            let is_control = |c: char| c.is_control() && !"\t\n".contains(c);
            if may_end || expands || line.contains(is_control) {
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

/// The lines of the document in a substitution of this shape, whose inside this is.
pub(in crate::policy::line) fn enclosed_text(inside: &str) -> Option<String> {
    let (_, after) = inside.split_once("<<")?;
    let (first, body) = after.split_once('\n')?;
    let tag = first.trim_matches([' ', '\t', '\'', '"']);
    let mut lines = String::new();
    for line in body.split_inclusive('\n') {
        if line.strip_suffix('\n') == Some(tag) {
            return Some(lines);
        }
        lines.push_str(line);
    }
    None
}
