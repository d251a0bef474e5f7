//! A secret value in whatever form somebody repeats it: as it is, or as it travelled there.

use std::fmt::Write as _;

use super::VALUE_BYTES_MIN;

/// The value and what it looks like escaped, quoted, in base64, in hexadecimal and in an address.
pub(crate) fn forms(value: &str) -> Vec<String> {
    let bytes = value.as_bytes();
    let escaped = serde_json::Value::from(value).to_string();
    let hex = hex(bytes);
    let (plain, for_addresses) = (base64(bytes, b"+/"), base64(bytes, b"-_"));
    let encoded = percent(bytes);
    let inside = [0, 1, 2]
        .into_iter()
        .flat_map(|before| [b"+/", b"-_"].map(|last| base64_inside(bytes, before, last)));
    let mut forms = vec![
        value.to_owned(),
        escaped.trim_matches('"').to_owned(),
        // A text inside of a text, as a proxy quotes the answer that it was given.
        escaped.trim_matches('"').replace('\\', "\\\\"),
        value.escape_default().to_string(),
        hex.to_uppercase(),
        hex,
        // What fills them up at the end stays; it tells nothing.
        plain,
        for_addresses,
        encoded.to_lowercase(),
        encoded.replace("%20", "+"),
        encoded,
    ];
    forms.extend(inside.filter(|form| form.len() >= VALUE_BYTES_MIN));
    forms
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn percent(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            text.push(char::from(*byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

/// The same of a value that stands in a longer text, behind so many bytes: without the characters at either end that
/// the text around it has a part in.
fn base64_inside(bytes: &[u8], before: usize, last: &[u8; 2]) -> String {
    let whole = base64(&[&[0; 2][..before], bytes].concat(), last);
    let shared = (before * 8).div_ceil(6);
    let end = (before + bytes.len()) * 8 / 6;
    whole[shared..end].to_owned()
}

/// Without what fills it up; the last two characters of the alphabet differ by its use.
fn base64(bytes: &[u8], last: &[u8; 2]) -> String {
    let letters = (b'A'..=b'Z').chain(b'a'..=b'z').chain(b'0'..=b'9').chain(*last);
    let letters: Vec<char> = letters.map(char::from).collect();
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let byte = |at: usize| usize::from(three.get(at).copied().unwrap_or(0));
        let whole = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for at in 0..=three.len() {
            text.push(letters[(whole >> (18 - 6 * at)) & 63]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_known_in_the_base64_of_a_longer_text() {
        for value in ["hunter2", "hunter22", "hunter222"] {
            for before in ["", "a", "ab", "abc", "user:"] {
                for behind in ["", "\n", "xy", "xyz"] {
                    let text = base64(format!("{before}{value}{behind}").as_bytes(), b"-_");
                    let found = forms(value).into_iter().find(|form| text.contains(form));
                    let found = found.unwrap_or_else(|| panic!("{before}{value}{behind}: {text}"));
                    assert!(
                        text.len() - found.len() <= (before.len() + behind.len()) * 2 + 3,
                        "{text}: {found}"
                    );
                }
            }
        }
    }

    #[test]
    fn base64_is_what_everybody_writes() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
        ] {
            assert_eq!(base64(bytes.as_bytes(), b"+/"), text);
        }
    }
}
