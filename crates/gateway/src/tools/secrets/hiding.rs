//! A value that must not be seen, in whatever form a system repeats it: as it is, or as it travelled there.

use std::fmt::Write as _;

use crate::audit::redact::REPLACEMENT;

/// A text in which a value does not occur, in none of its forms.
pub(super) fn hidden(value: &str, text: &str) -> String {
    if value.is_empty() {
        return text.to_owned();
    }
    let mut forms = forms(value);
    // A form may begin with another one, whose rest would stay.
    forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
    let forms = forms.iter().filter(|form| !form.is_empty());
    forms.fold(text.to_owned(), |text, form| text.replace(form, REPLACEMENT))
}

fn forms(value: &str) -> Vec<String> {
    let bytes = value.as_bytes();
    let escaped = serde_json::Value::from(value).to_string();
    let hex = hex(bytes);
    let (plain, for_addresses) = (base64(bytes, b"+/"), base64(bytes, b"-_"));
    let encoded = percent(bytes);
    vec![
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
    ]
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
    fn a_value_is_hidden_in_every_form_that_it_travels_in() {
        let value = "p/w \"1\"\n>>>?é~";
        for form in [
            value,
            "cC93ICIxIgo+Pj4/w6l+",
            "cC93ICIxIgo-Pj4_w6l-",
            "p%2Fw%20%221%22%0A%3E%3E%3E%3F%C3%A9~",
            "p%2fw%20%221%22%0a%3e%3e%3e%3f%c3%a9~",
            "p%2Fw+%221%22%0A%3E%3E%3E%3F%C3%A9~",
            "p/w \\\"1\\\"\\n>>>?é~",
            "p/w \\\\\"1\\\\\"\\\\n>>>?é~",
            "702f77202231220a3e3e3e3fc3a97e",
            "702F77202231220A3E3E3E3FC3A97E",
        ] {
            let said = hidden(value, &format!("it was <{form}>, and <{form}> again"));
            assert_eq!(said, "it was <[redacted]>, and <[redacted]> again", "{form}");
        }
        assert_eq!(hidden("", "nothing to hide"), "nothing to hide");
        assert_eq!(hidden(value, "another text"), "another text");
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
