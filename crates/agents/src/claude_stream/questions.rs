//! What Claude asks before it acts, and how it is answered.

use std::path::Path;

use countersign_gateway::job::driver::{AgentAnswer, AgentQuestion};
use countersign_gateway::tools::prompt::reading;
use serde_json::{Value, json};

use super::absolute;
use crate::speech::text_at;

/// The question in a `can_use_tool` request.
pub(super) fn question(request: &Value, id: &str, cwd: &Path) -> AgentQuestion {
    let tool = text_at(request, &["tool_name"]).unwrap_or("unknown");
    let input = request.get("input").unwrap_or(&Value::Null);
    let mut question = reading::question(tool, input, id, cwd, Path::exists);
    let reason = text_at(request, &["decision_reason"]).or_else(|| text_at(request, &["description"]));
    question.reason = reason.map(str::to_owned);
    question.wants_more |= is_outside(request, cwd);
    question
}

/// Whether it asks for a place outside of where it works.
fn is_outside(request: &Value, cwd: &Path) -> bool {
    text_at(request, &["blocked_path"]).is_some_and(|path| !absolute(cwd, path).starts_with(cwd))
}

/// The answer to a `can_use_tool` request. What is allowed is exactly what was asked for.
pub(super) fn answer(id: &str, input: &Value, answer: AgentAnswer) -> Value {
    let decision = match answer {
        AgentAnswer::Allow => json!({"behavior": "allow", "updatedInput": input}),
        AgentAnswer::Deny { reason } => json!({"behavior": "deny", "message": reason}),
    };
    json!({"type": "control_response",
        "response": {"subtype": "success", "request_id": id, "response": decision}})
}

/// The answer to a request that nobody here knows: an error, never a yes.
pub(super) fn refusal(id: &str, subtype: &str) -> Value {
    json!({"type": "control_response",
        "response": {"subtype": "error", "request_id": id, "error": format!("`{subtype}` is not offered here")}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_keeps_its_reason_and_says_when_it_reaches_out() {
        let asked = |blocked: Value| {
            let request = json!({"tool_name": "Bash", "input": {"command": "ls"}, "description": "to look",
                "blocked_path": blocked});
            question(&request, "1", Path::new("/work"))
        };
        assert_eq!(asked(Value::Null).reason.as_deref(), Some("to look"));
        for (blocked, more) in [
            (Value::Null, false),
            (json!("a"), false),
            (json!("/work/a"), false),
            (json!("/etc"), true),
        ] {
            assert_eq!(asked(blocked.clone()).wants_more, more, "{blocked}");
        }
    }
}
