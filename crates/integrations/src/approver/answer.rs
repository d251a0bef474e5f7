//! What an approver's answer means. Whatever is not clearly a yes is a no.

use countersign_gateway::approval::ballot::Choice;
use countersign_gateway::approval::callback::Word;
use countersign_gateway::approval::question::Given;
use countersign_gateway::approval::request::ApprovalRequest;
use hyper::StatusCode;
use serde_json::Value;

use super::Timing;
use crate::http::{ANSWER_BYTES_MAX, Reply};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Said {
    Yes(String),
    No(String),
    /// The answer comes by a callback.
    Pending,
}

impl Said {
    /// In the words of the record.
    pub(super) fn told(&self) -> String {
        match self {
            Self::Yes(reason) => format!("approve: {reason}"),
            Self::No(reason) => format!("deny: {reason}"),
            Self::Pending => "pending".to_owned(),
        }
    }
}

pub(super) fn read(reply: &Reply, question: &ApprovalRequest, timing: &Timing) -> Said {
    let no = |reason: &str| Said::No(reason.to_owned());
    let status = reply.status;
    if status.is_redirection() {
        return Said::No(format!(
            "the approver answered HTTP {status}, and redirects are not followed"
        ));
    }
    if !status.is_success() {
        return Said::No(format!("the approver answered HTTP {status}"));
    }
    let Some(body) = &reply.body else {
        return Said::No(format!("the approver's answer is longer than {ANSWER_BYTES_MAX} bytes"));
    };
    if status == StatusCode::ACCEPTED && body.iter().all(u8::is_ascii_whitespace) {
        return pending(timing);
    }
    let Ok(Value::Object(answer)) = serde_json::from_slice(body) else {
        return no("the approver's answer is not a JSON object");
    };
    for (field, own) in [
        ("correlation_id", question.correlation_id.as_str()),
        ("approval_request_id", question.id.as_str()),
    ] {
        if answer.get(field).is_some_and(|said| said != own) {
            return Said::No(format!("the approver's answer is about another `{field}`"));
        }
    }
    let word = answer.get("decision").and_then(Value::as_str).unwrap_or_default();
    if word == "pending" {
        return pending(timing);
    }
    let reason = answer.get("reason").and_then(Value::as_str).unwrap_or_default();
    let meaning = Word::parse(word).and_then(|word| Some((word, word.choice()?)));
    match meaning {
        Some((_, Choice::Allow)) => Said::Yes(reason.to_owned()),
        Some((word, Choice::Deny)) if reason.is_empty() => match word.reason() {
            "" => no("no reason was given"),
            why => no(why),
        },
        Some((_, Choice::Deny)) => no(reason),
        None => no("the approver's answer has no `decision` that we know"),
    }
}

/// What a question is answered with, where one was asked.
pub(super) fn chosen(reply: &Reply) -> Option<Given> {
    let answer: Value = serde_json::from_slice(reply.body.as_ref()?).ok()?;
    let text = |name: &str| answer.get(name)?.as_str().map(str::to_owned);
    text("selected_option")
        .map(Given::Option)
        .or_else(|| text("custom").map(Given::Custom))
}

fn pending(timing: &Timing) -> Said {
    match timing {
        Timing::Later { .. } => Said::Pending,
        Timing::AtOnce(_) => Said::No(
            "the approver wants to answer later, and is not configured so; set `async: true`, or let it answer at once"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::question::tests::asked;
    use super::*;

    fn said(status: u16, body: &str, timing: &Timing) -> Said {
        let reply = Reply {
            status: StatusCode::from_u16(status).unwrap(),
            body: Some(body.to_owned().into()),
        };
        read(&reply, &asked(serde_json::json!({})), timing)
    }

    const AT_ONCE: Timing = Timing::AtOnce(Duration::from_secs(1));

    fn later() -> Timing {
        Timing::Later {
            callback_url: "http://h/".into(),
            patience: None,
        }
    }

    #[test]
    fn only_a_clear_yes_is_one() {
        for (status, body) in [
            (200, r#"{"decision": "approve", "reason": "fine"}"#),
            (
                200,
                r#"{"decision": "approved", "reason": "fine", "correlation_id": "c1"}"#,
            ),
            (202, r#"{"decision": "approve", "reason": "fine", "request_id": "x"}"#),
        ] {
            assert_eq!(said(status, body, &AT_ONCE), Said::Yes("fine".into()), "{body}");
        }
        for (status, body) in [
            (200, r#"{"decision": "deny"}"#),
            (200, r#"{"decision": "error"}"#),
            (200, r#"{"decision": "expired"}"#),
            (200, r#"{"decision": "applied"}"#),
            (200, r#"{"decision": "Approve"}"#),
            (200, r#"{"decision": true}"#),
            (200, r#"{"decision": "approve", "correlation_id": "another"}"#),
            (200, r#"{"decision": "approve", "approval_request_id": 7}"#),
            (200, r#"["approve"]"#),
            (200, "{}"),
            (200, "approve"),
            (200, ""),
            (204, ""),
            (302, r#"{"decision": "approve"}"#),
            (401, r#"{"decision": "approve"}"#),
            (500, r#"{"decision": "approve"}"#),
            (503, ""),
        ] {
            let answer = said(status, body, &later());
            assert!(matches!(answer, Said::No(_)), "{status} {body}: {answer:?}");
        }
    }

    #[test]
    fn who_is_not_asked_to_answer_later_may_not() {
        for (status, body) in [(202, ""), (200, r#"{"decision": "pending"}"#), (202, " \r\n")] {
            assert_eq!(said(status, body, &later()), Said::Pending, "{status} {body}");
            assert!(matches!(said(status, body, &AT_ONCE), Said::No(_)), "{status} {body}");
        }
    }

    #[test]
    fn an_answer_without_end_is_a_no() {
        let reply = Reply {
            status: StatusCode::OK,
            body: None,
        };
        let answer = read(&reply, &asked(serde_json::json!({})), &AT_ONCE);
        assert!(matches!(answer, Said::No(_)), "{answer:?}");
    }

    #[test]
    fn a_refusal_by_status_says_which() {
        let Said::No(reason) = said(403, "", &AT_ONCE) else {
            panic!("a no")
        };
        assert_eq!(reason, "the approver answered HTTP 403 Forbidden");
    }
}
