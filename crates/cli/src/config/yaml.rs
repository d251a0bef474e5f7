//! Writing values as YAML on one line, the way a person would in a configuration file.

use serde_json::Value as Json;

/// Flow style: `[git, ls]`, `{cargo: [rustc]}`, `"1"`.
pub(super) fn flow(value: &Json) -> String {
    match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => value.to_string(),
        Json::String(text) => scalar(text),
        Json::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Json::Object(pairs) => {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(name, value)| format!("{}: {}", scalar(name), flow(value)))
                .collect();
            format!("{{{}}}", pairs.join(", "))
        }
    }
}

/// Bare where nothing could take it for something else, quoted as in JSON otherwise.
fn scalar(text: &str) -> String {
    let first = text
        .chars()
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '/' || first == '_');
    let rest = text
        .chars()
        .all(|letter| letter.is_ascii_alphanumeric() || "_-./+".contains(letter));
    let word = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&text.to_lowercase().as_str());
    if first && rest && !word {
        text.to_owned()
    } else {
        Json::String(text.to_owned()).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tree;

    #[test]
    fn what_is_written_reads_back_the_same() {
        for (value, text) in [
            (
                serde_json::json!(["git", "*", "no", "1", ""]),
                r#"[git, "*", "no", "1", ""]"#,
            ),
            (
                serde_json::json!({"cargo": ["a/b", "a: b"], "x#y": null}),
                r#"{cargo: [a/b, "a: b"], "x#y": null}"#,
            ),
            (
                serde_json::json!(["quote \" and \\ and é\n", 1.5, true]),
                r#"["quote \" and \\ and é\n", 1.5, true]"#,
            ),
        ] {
            assert_eq!(flow(&value), text);
            assert_eq!(tree::read(text).unwrap().to_json(), value);
        }
    }
}
