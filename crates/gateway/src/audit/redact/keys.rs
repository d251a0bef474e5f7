//! Private keys inside of texts that run. Their frames and the lines between are hidden whatever stands around them:
//! no command looks like that. Anything else between the frames stays readable, so that no command hides there.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::compiled;

/// Shorter runs of such letters may be the name of a program.
const RUN_BYTES_MIN: usize = 32;

/// A key from its first line to its last.
static KEYS: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)|(?s:PuTTY-User-Key-File-.*?(?:Private-MAC: [0-9a-f]+|\z))",
    )
});

/// What is said of a key, and what it consists of.
static PARTS: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r"\\[nr]|-----(?:BEGIN|END) [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|Proc-Type: 4,ENCRYPTED|DEK-Info: [A-Z0-9\-]+,[0-9A-Fa-f]+|PuTTY-User-Key-File-[0-9]|Private-MAC: [0-9a-f]+|[A-Za-z0-9+/]+={0,2}|=[A-Za-z0-9+/]{4}",
    )
});

/// Where the parts of keys stand.
pub(super) fn spans(text: &str) -> Vec<Range<usize>> {
    let keys = KEYS.find_iter(text).map(|key| key.range());
    keys.flat_map(|key| parts(text, key)).collect()
}

fn parts(text: &str, key: Range<usize>) -> Vec<Range<usize>> {
    let mut kept: Vec<Range<usize>> = Vec::new();
    // Letters of the key so far: together they come in fours.
    let mut letters = 0;
    // Nothing but ends of lines was found since the last part that is kept.
    let mut follows = false;
    let mut before = key.start;
    for found in PARTS.find_iter(&text[key.clone()]) {
        let part = key.start + found.start()..key.start + found.end();
        let word = found.as_str();
        follows &= text[before..part.start].trim().is_empty();
        before = part.end;
        // The end of a line that is written as `\n`.
        if word.starts_with('\\') {
            continue;
        }
        if word.bytes().all(is_letter) {
            letters += word.len();
            let is_last = || letters.is_multiple_of(4) && is_followed_by_end(&text[part.end..key.end]);
            let is_part = is_body(word) || is_odd(word) && follows && is_last();
            if !is_part {
                follows = false;
                continue;
            }
        }
        match kept.last_mut() {
            Some(last) if follows => last.end = part.end,
            _ => kept.push(part),
        }
        follows = true;
    }
    kept
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

/// Long enough, and neither a path nor a word.
fn is_body(word: &str) -> bool {
    let slashes = word.bytes().filter(|byte| *byte == b'/').count();
    word.len() >= RUN_BYTES_MIN && slashes * 8 <= word.len() && is_odd(word)
}

/// What programs are not called.
fn is_odd(word: &str) -> bool {
    let has = |test: fn(&u8) -> bool| word.bytes().any(|byte| test(&byte));
    let is_mixed = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    !word.starts_with(['/', '.']) && (is_mixed || has(u8::is_ascii_digit) || word.ends_with('='))
        || word.len() >= RUN_BYTES_MIN && is_mixed
}

fn is_followed_by_end(rest: &str) -> bool {
    let rest = rest.trim_start_matches(['\n', '\r', '\t', ' ', '\\', 'n', 'r']);
    rest.starts_with("-----END ") || rest.starts_with('=') || rest.starts_with("Private-") || rest.is_empty()
}
