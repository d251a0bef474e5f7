//! The forms that a secret takes on its way, for whoever looks whether it got where it must not be.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// A value as it is, and as it is written in files, addresses, requests and answers.
pub fn forms(value: &str) -> Vec<String> {
    let bytes = value.as_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let encoded: String = bytes
        .iter()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(*byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect();
    let escaped = serde_json::Value::from(value).to_string();
    let mut forms = vec![
        value.to_owned(),
        STANDARD_NO_PAD.encode(bytes),
        URL_SAFE_NO_PAD.encode(bytes),
        hex.to_uppercase(),
        hex,
        encoded.replace("%20", "+"),
        encoded,
        escaped.trim_matches('"').replace('\\', "\\\\"),
        escaped.trim_matches('"').to_owned(),
    ];
    forms.sort();
    forms.dedup();
    forms
}

/// The forms of a value that these bytes hold.
pub fn found(value: &str, bytes: &[u8]) -> Vec<String> {
    let holds = |form: &String| bytes.windows(form.len()).any(|window| window == form.as_bytes());
    forms(value).into_iter().filter(holds).collect()
}
