//! What the user of a client is shown of a question, and what their answer means.
//!
//! A form has a message and a flat schema, which is all that every client can show. Much of the message
//! was written by the agent, so each fact keeps to its own line: nothing in it can look like another.

use std::fmt::Write as _;

use countersign_gateway::approval::ballot::Choice;
use countersign_gateway::approval::client::Word;
use countersign_gateway::approval::question::{Given, Offer};
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::approval::unseen::is_unseen;
use serde_json::{Value, json};

use super::question::Question;
use crate::limits::FORM_LINE_CHARS_MAX;

/// The form for a question of the board.
pub(crate) fn of(approval: &ApprovalRequest) -> Question {
    let (message, schema) = match Offer::of(approval) {
        Some(offer) => (line(offer.question()), choosing(&offer)),
        None => (deciding(approval), decision()),
    };
    let params = json!({"message": message, "requestedSchema": schema});
    Question::new("elicitation/create", params).expect("the protocol knows forms")
}

/// What an answer to the form means; none where it decides nothing.
pub(crate) fn word(approval: &ApprovalRequest, answer: &Value) -> Option<Word> {
    let content = &answer["content"];
    let given = |name: &str| content[name].as_str().filter(|text| !text.trim().is_empty());
    let said = |choice: Choice, unless: &str, answer: Option<Given>| Word {
        choice,
        reason: given("reason").unwrap_or(unless).to_owned(),
        answer,
    };
    match (answer["action"].as_str()?, Offer::of(approval)) {
        ("decline", _) => Some(said(Choice::Deny, "the client's user declined", None)),
        ("accept", None) => match content["decision"].as_str()? {
            "approve" => Some(said(Choice::Allow, "approved by the client's user", None)),
            "deny" => Some(said(Choice::Deny, "denied by the client's user", None)),
            _ => None,
        },
        ("accept", Some(offer)) => {
            let own = given("custom").filter(|_| offer.allows_custom());
            let chosen = given("answer").filter(|text| offer.options().iter().any(|option| option == text));
            let answer = match (own, chosen) {
                (Some(own), _) => Given::Custom(own.to_owned()),
                (None, chosen) => Given::Option(chosen?.to_owned()),
            };
            Some(said(Choice::Allow, "answered by the client's user", Some(answer)))
        }
        _ => None,
    }
}

/// What has a line of its own, or says nothing beyond another.
const TOLD: [&str; 14] = [
    "command",
    "programs",
    "how",
    "cwd",
    "reason",
    "rule",
    "rule_reason",
    "source",
    "sandbox",
    "network",
    "justification",
    "risks",
    "input_bytes",
    "timeout_ms",
];

/// What will happen, where, who asks for it and what is worth a second look.
fn deciding(approval: &ApprovalRequest) -> String {
    let detail = |name: &str| approval.details.get(name).and_then(Value::as_str).unwrap_or_default();
    let list = |name: &str| {
        let entries = approval.details.get(name).and_then(Value::as_array);
        let entries: Vec<&str> = entries.into_iter().flatten().filter_map(Value::as_str).collect();
        entries.join(", ")
    };
    let mut message = format!("May `{}` go ahead?\n", line(&approval.tool));
    let mut put = |name: &str, text: &str| {
        if !text.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(message, "\n{name}: {}", line(text));
        }
    };
    put("runs", detail("command"));
    put("programs", &list("programs"));
    put("in", detail("cwd"));
    put("because", approval.because().unwrap_or_default());
    put("rule", detail("rule"));
    put("the agent says", approval.agents_words().unwrap_or_default());
    put("sandbox", detail("sandbox"));
    put("network", detail("network"));
    put("note", &list("risks"));
    for (name, value) in approval
        .details
        .iter()
        .filter(|(name, _)| !TOLD.contains(&name.as_str()))
    {
        match value {
            Value::String(text) if name == "input" => put("standard input", text),
            Value::String(text) => put(&line(name), text),
            Value::Null => {}
            other => put(&line(name), &other.to_string()),
        }
    }
    if approval.quorum > 1 {
        put(
            "needs",
            &format!("{} to agree, of whom this client is one", approval.quorum),
        );
    }
    put("approval", approval.id.as_str());
    message
}

fn decision() -> Value {
    json!({
        "type": "object",
        "properties": {
            "decision": {
                "type": "string",
                "title": "Decision",
                "description": "Whether this may run, once, exactly as shown",
                "enum": ["approve", "deny"],
            },
            "reason": {
                "type": "string",
                "title": "Reason",
                "description": "Why; the agent is told of a denial's reason",
            },
        },
        "required": ["decision"],
    })
}

fn choosing(offer: &Offer) -> Value {
    let mut schema = json!({
        "type": "object",
        "properties": {"answer": {"type": "string", "title": "Answer", "enum": offer.options()}},
    });
    if offer.allows_custom() {
        schema["properties"]["custom"] = json!({"type": "string", "title": "Or in your own words"});
    } else {
        schema["required"] = json!(["answer"]);
    }
    schema
}

/// One line of text that shows every character it has. What would break the line, or turn its direction,
/// is written by number.
fn line(text: &str) -> String {
    let mut shown = String::new();
    for (count, character) in text.chars().enumerate() {
        if count == FORM_LINE_CHARS_MAX {
            let rest = text.chars().count() - count;
            // Writing to a string cannot fail.
            let _ = write!(shown, "… and {rest} more characters");
            break;
        }
        match character {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            _ if is_unseen(character) => shown.extend(character.escape_unicode()),
            _ => shown.push(character),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use countersign_gateway::approval::request::ApprovalType;
    use countersign_gateway::clock::Timestamp;
    use countersign_gateway::ids::{ApprovalId, CorrelationId, CredentialId};
    use serde_json::Map;

    use super::*;

    fn approval(kind: ApprovalType, details: Value) -> ApprovalRequest {
        let mut approval = ApprovalRequest::new(
            ApprovalId::trusted("a1"),
            kind,
            CorrelationId::trusted("c"),
            CredentialId::trusted("local"),
            Timestamp::from_millis(0),
        );
        approval.tool = "execute_command".to_owned();
        let Value::Object(details) = details else {
            panic!("details are an object")
        };
        approval.details = details;
        approval
    }

    fn command(line: &str) -> ApprovalRequest {
        let details = json!({
            "command": line, "programs": ["/bin/rm"], "cwd": "/work", "reason": "mode untrusted asks",
            "rule": "mode untrusted", "sandbox": "workspace-write", "network": "deny",
            "risks": ["`rm` deletes", "may start any program"], "justification": "cleaning up",
        });
        approval(ApprovalType::ExecCommand, details)
    }

    #[test]
    fn a_form_says_what_runs_where_and_why() {
        let form = of(&command("rm -rf build"));
        let expected = "May `execute_command` go ahead?\n\nruns: rm -rf build\nprograms: /bin/rm\nin: /work\n\
                        because: mode untrusted asks\nrule: mode untrusted\nthe agent says: cleaning up\n\
                        sandbox: workspace-write\nnetwork: deny\nnote: `rm` deletes, may start any program\n\
                        approval: a1";
        assert_eq!(form.params()["message"], expected);
        assert_eq!(form.params()["requestedSchema"]["required"], json!(["decision"]));
    }

    #[test]
    fn a_form_leaves_nothing_out_that_a_question_says() {
        let details = json!({
            "add_labels": ["run:ops"], "repository": "octo/shop", "reason": "policy asks", "rule": "tools",
            "env": {"MODE": "\u{202e}x"}, "newer": true, "nothing": null,
        });
        let form = of(&approval(ApprovalType::ToolCall, details));
        let message = form.params()["message"].as_str().unwrap().to_owned();
        for seen in [
            "repository: octo/shop",
            "add_labels: [\"run:ops\"]",
            "env: {\"MODE\":\"\\u{202e}x\"}",
            "newer: true",
        ] {
            assert!(message.contains(seen), "{seen} is missing: {message}");
        }
        assert!(!message.contains("nothing"), "{message}");
    }

    #[test]
    fn an_agents_reason_is_told_as_its_own() {
        let details =
            json!({"command": "rm x", "reason": "policy wants a yes here", "rule_reason": "no rule covers it"});
        let form = of(&approval(ApprovalType::ExecCommand, details));
        let message = form.params()["message"].as_str().unwrap().to_owned();
        assert!(
            message.contains("because: no rule covers it\n")
                && message.contains("the agent says: policy wants a yes here\n"),
            "{message}"
        );
    }

    #[test]
    fn what_an_agent_wrote_stays_on_its_line() {
        let form = of(&command("ls\nin: /elsewhere\u{202e}\u{1b}[2K"));
        let message = form.params()["message"].as_str().unwrap().to_owned();
        assert_eq!(message.lines().filter(|line| line.starts_with("in: ")).count(), 1);
        assert!(
            message.contains("runs: ls\\nin: /elsewhere\\u{202e}\\u{1b}[2K"),
            "{message}"
        );
        let long = "x".repeat(FORM_LINE_CHARS_MAX + 1);
        let message = of(&command(&long)).params()["message"].to_string();
        assert!(message.contains("… and 1 more characters") && !message.contains(&long));
    }

    #[test]
    fn only_a_clear_answer_decides() {
        let decided = |answer: Value| word(&command("ls"), &answer).map(|word| (word.choice, word.reason));
        let yes = |reason: &str| Some((Choice::Allow, reason.to_owned()));
        let no = |reason: &str| Some((Choice::Deny, reason.to_owned()));
        let accept = |content: Value| decided(json!({"action": "accept", "content": content}));
        assert_eq!(
            accept(json!({"decision": "approve"})),
            yes("approved by the client's user")
        );
        assert_eq!(accept(json!({"decision": "approve", "reason": "ok"})), yes("ok"));
        assert_eq!(accept(json!({"decision": "deny", "reason": "no"})), no("no"));
        assert_eq!(
            accept(json!({"decision": "deny", "reason": " "})),
            no("denied by the client's user")
        );
        assert_eq!(accept(json!({"decision": "Approve"})), None);
        assert_eq!(accept(json!({"decision": true})), None);
        assert_eq!(accept(json!({})), None);
        assert_eq!(decided(json!({"action": "accept"})), None);
        assert_eq!(decided(json!({"action": "decline"})), no("the client's user declined"));
        assert_eq!(decided(json!({"action": "cancel"})), None);
        assert_eq!(
            decided(json!({"action": "cancel", "content": {"decision": "approve"}})),
            None
        );
        assert_eq!(decided(json!({})), None);
    }

    #[test]
    fn a_question_with_options_is_a_form_to_choose_from() {
        let options = ["main", "next"].map(str::to_owned);
        let asked = |custom| {
            let details = Offer::new("Which branch?", &options, custom).unwrap().details();
            approval(ApprovalType::Question, Value::Object(Map::from_iter(details)))
        };
        let schema = of(&asked(false)).params()["requestedSchema"].clone();
        assert_eq!(
            (
                &schema["properties"]["answer"]["enum"],
                schema["properties"].get("custom")
            ),
            (&json!(["main", "next"]), None)
        );
        let said = |custom, content: Value| {
            word(&asked(custom), &json!({"action": "accept", "content": content})).and_then(|word| word.answer)
        };
        assert_eq!(
            said(false, json!({"answer": "next"})),
            Some(Given::Option("next".to_owned()))
        );
        assert_eq!(said(false, json!({"answer": "other"})), None);
        assert_eq!(said(false, json!({"custom": "mine"})), None);
        assert_eq!(
            said(true, json!({"answer": "next", "custom": "mine"})),
            Some(Given::Custom("mine".to_owned()))
        );
    }
}
