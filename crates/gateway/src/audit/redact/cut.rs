//! Texts whose middle was left out. What stands at the cut may be half of a secret, which no shape, name or value
//! tells any more.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

use super::{REPLACEMENT, Redactor, compiled};

/// How much of a word at the cut goes; what has no blanks at all is not kept from readers for it.
const WORD_BYTES_MAX: usize = 4096;

/// The rest of a private key whose beginning was left out.
static REST_OF_KEY: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"\A(?s:.*?)-----(BEGIN|END) [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"));

impl Redactor {
    /// What stands before a cut, without its last word.
    pub fn redact_head<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let from = boundary(text, text.len().saturating_sub(WORD_BYTES_MAX));
        let blank = text[from..].char_indices().rfind(|(_, c)| c.is_whitespace());
        let end = blank.map_or(from, |(at, c)| from + at + c.len_utf8());
        if end == text.len() {
            return self.redact_text(text);
        }
        Cow::Owned(self.redact_text(&text[..end]).into_owned() + REPLACEMENT)
    }

    /// What stands behind a cut, without its first word and without the rest of a private key.
    pub fn redact_tail<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let key = REST_OF_KEY.captures(text).filter(|found| &found[1] == "END");
        let key_end = key.map_or(0, |found| found[0].len());
        let until = boundary(text, text.len().min(WORD_BYTES_MAX));
        let word_end = text[..until].find(char::is_whitespace).unwrap_or(until);
        match word_end.max(key_end) {
            0 => self.redact_text(text),
            end => Cow::Owned(REPLACEMENT.to_owned() + &self.redact_text(&text[end..])),
        }
    }
}

/// The start of the character that this byte belongs to.
fn boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
