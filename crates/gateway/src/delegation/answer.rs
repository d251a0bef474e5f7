//! What a service's answer means. Whatever is not clearly done has failed.

use serde_json::{Map, Value};

use super::Reply;

/// Characters of a service's own words that are passed on.
const WORDS_MAX: usize = 1_000;

#[derive(Clone, PartialEq, Debug)]
pub enum Said {
    Done(Value),
    Failed(String),
    /// The answer comes by a callback.
    Later,
}

/// Reads an answer: `{status: success|error|pending, result?}`, or any other JSON as the result itself.
pub fn read(reply: &Reply, answers_later: bool) -> Said {
    let failed = |message: String| Said::Failed(message);
    let later = || {
        match answers_later {
        true => Said::Later,
        false => failed(
            "the service wants to answer later, and its tool does not say so; set `async: true`, or let it answer at once"
                .to_owned(),
        ),
    }
    };
    if !(200..300).contains(&reply.status) {
        return failed(format!("the service answered HTTP {}", reply.status));
    }
    let Some(body) = &reply.body else {
        return failed("the service's answer is longer than 1 MiB".to_owned());
    };
    let is_empty = body.iter().all(u8::is_ascii_whitespace);
    if is_empty {
        return if reply.status == 202 {
            later()
        } else {
            Said::Done(Value::from("ok"))
        };
    }
    let answer: Value = match serde_json::from_slice(body) {
        Ok(answer) => answer,
        Err(error) => return failed(format!("the service's answer is not JSON: {error}")),
    };
    let Some(fields) = answer.as_object() else {
        return Said::Done(answer);
    };
    match fields.get("status").map(|status| status.as_str()) {
        None => Said::Done(answer),
        Some(Some("success")) => Said::Done(result(fields.get("result"))),
        Some(Some("error")) => failed(reason(fields)),
        Some(Some("pending")) => later(),
        // A raw result may have a `status` of its own; that it was done is not ours to guess.
        Some(_) => failed("the service's answer has a `status` that is none of success, error, pending".to_owned()),
    }
}

/// An empty result of something that was done is `ok`.
pub(crate) fn result(given: Option<&Value>) -> Value {
    match given {
        None | Some(Value::Null) => Value::from("ok"),
        Some(Value::String(text)) if text.is_empty() => Value::from("ok"),
        Some(result) => result.clone(),
    }
}

/// Why something was not done, in the service's own words where it has some.
pub(crate) fn reason(fields: &Map<String, Value>) -> String {
    let said = ["result", "reason", "message", "error"]
        .iter()
        .find_map(|name| match fields.get(*name)? {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        });
    let said = said.filter(|said| !said.trim().is_empty());
    let said: String = said
        .unwrap_or_else(|| "the service says no more than `error`".to_owned())
        .chars()
        .take(WORDS_MAX)
        .collect();
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(status: u16, body: &str, later: bool) -> Said {
        let reply = Reply {
            status,
            body: Some(body.as_bytes().to_vec()),
        };
        read(&reply, later)
    }

    #[test]
    fn only_what_is_clearly_done_is_done() {
        for (status, body, result) in [
            (200, r#"{"status": "success", "result": {"a": 1}}"#, json!({"a": 1})),
            (200, r#"{"status": "success"}"#, json!("ok")),
            (200, r#"{"status": "success", "result": ""}"#, json!("ok")),
            (200, r#"{"answer": 42}"#, json!({"answer": 42})),
            (201, "[1]", json!([1])),
            (204, "", json!("ok")),
        ] {
            assert_eq!(said(status, body, false), Said::Done(result), "{body}");
        }
        for (status, body) in [
            (200, r#"{"status": "error", "result": "no"}"#),
            (200, r#"{"status": "SUCCESS"}"#),
            (200, r#"{"status": true}"#),
            (200, "done"),
            (302, "{}"),
            (404, r#"{"status": "success"}"#),
            (500, ""),
        ] {
            assert!(matches!(said(status, body, true), Said::Failed(_)), "{status} {body}");
        }
        assert_eq!(
            said(200, r#"{"status": "error", "result": "no"}"#, false),
            Said::Failed("no".into())
        );
    }

    #[test]
    fn only_a_tool_that_says_so_is_answered_later() {
        for (status, body) in [(202, ""), (200, r#"{"status": "pending"}"#)] {
            assert_eq!(said(status, body, true), Said::Later);
            assert!(matches!(said(status, body, false), Said::Failed(_)));
        }
    }

    #[test]
    fn an_answer_without_end_has_failed() {
        let reply = Reply {
            status: 200,
            body: None,
        };
        assert!(matches!(read(&reply, true), Said::Failed(_)));
    }
}
