//! Writes a result as YAML for readers of text: multi-line output as a block, everything else on a
//! line. Every value reads back exactly.

use std::fmt::Write as _;

use serde_json::Value;

/// One `key: value` per field of an object, in order; nested values in flow style.
pub fn write(value: &Value) -> String {
    let mut text = String::with_capacity(512);
    let Value::Object(fields) = value else {
        return format!("{value}\n");
    };
    // What a reader looks for first stands first.
    let first = ["status", "exit_code", "stdout", "stderr"];
    let rest = fields.iter().filter(|(name, _)| !first.contains(&name.as_str()));
    let lead = first.iter().filter_map(|name| fields.get_key_value(*name));
    for (name, value) in lead.chain(rest) {
        text.push_str(name);
        text.push(':');
        match value {
            Value::String(scalar) => write_string(&mut text, scalar),
            other => {
                let _ = writeln!(text, " {other}");
            }
        }
    }
    text
}

fn write_string(text: &mut String, scalar: &str) {
    if !is_block(scalar) {
        text.push(' ');
        write_quoted(text, scalar);
        text.push('\n');
        return;
    }
    let kept = scalar.trim_end_matches('\n');
    let chomping = match scalar.len() - kept.len() {
        0 => "-",
        1 => "",
        _ => "+",
    };
    let _ = writeln!(text, " |2{chomping}");
    for line in scalar.strip_suffix('\n').unwrap_or(scalar).split('\n') {
        if !line.is_empty() {
            text.push_str("  ");
            text.push_str(line);
        }
        text.push('\n');
    }
}

/// A string between double quotes. JSON's escapes are YAML's too, but YAML asks for more of them.
fn write_quoted(text: &mut String, scalar: &str) {
    text.push('"');
    for c in scalar.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            c if is_printable(c) => text.push(c),
            c => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
        }
    }
    text.push('"');
}

/// What YAML lets stand as it is. All beyond the basic plane is printable.
fn is_printable(c: char) -> bool {
    let printable =
        matches!(c, '\t' | '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    printable && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// A literal block holds only printable characters, and must have something to hold.
fn is_block(scalar: &str) -> bool {
    scalar.contains('\n') && !scalar.trim_matches('\n').is_empty() && scalar.chars().all(is_printable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn output_reads_like_output() {
        let value = json!({"request_id": "r", "status": "ok", "exit_code": 0, "stdout": "a\n  b\n", "stderr": ""});
        assert_eq!(
            write(&value),
            "status: \"ok\"\nexit_code: 0\nstdout: |2\n  a\n    b\nstderr: \"\"\nrequest_id: \"r\"\n"
        );
    }

    proptest! {
        #[test]
        fn every_string_reads_back(lines in proptest::collection::vec("[ -~\t]{0,6}|\\PC{0,4}|[\u{0}-\u{ff}]{0,3}", 0..6), end in "\n{0,3}") {
            let value = json!({"stdout": lines.join("\n") + &end, "n": 1});
            let text = write(&value);
            let back: Value = serde_saphyr::from_str(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
            prop_assert_eq!(&back["stdout"], &value["stdout"], "{}", text);
        }
    }
}
