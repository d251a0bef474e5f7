//! One event of the record as one line for people.

use countersign_gateway::audit::row::Row;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::tools::declared::told_changes;
use serde_json::Value;

use super::text::{self, Html};
use super::time::{Moment, spoken_millis};

const LINE_CHARS: usize = 240;

/// An event as lists show it.
pub(super) struct Told {
    pub(super) seq: u64,
    pub(super) at: Moment,
    /// What happened, in a word or two.
    pub(super) what: String,
    pub(super) tone: &'static str,
    pub(super) actor: Html,
    pub(super) line: Html,
    pub(super) kind: Html,
    pub(super) story: String,
}

impl Told {
    pub(super) fn of(row: &Row, now: Timestamp) -> Self {
        let payload = row.payload().unwrap_or_default();
        Self {
            seq: row.place,
            at: Moment::parse(&row.timestamp, now),
            what: what(row, &payload),
            tone: tone(row, &payload),
            actor: text::shown(&row.actor_id, LINE_CHARS),
            line: text::shown(&line(row, &payload), LINE_CHARS),
            kind: text::shown(&row.event_type, LINE_CHARS),
            story: format!("/calls/{}", path_part(&row.correlation_id)),
        }
    }
}

/// Of ids that are ours; anything else in the place of one leads nowhere.
pub(super) fn path_part(id: &str) -> &str {
    let plain = id
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if plain { id } else { "-" }
}

/// How a status reads at a glance.
pub(super) fn tone_of(status: &str) -> &'static str {
    match status {
        "ok" | "approved" | "applied" | "auto-approved" | "allow" | "initialized" | "completed" => "good",
        "running" | "pending" | "ask" | "created" => "wait",
        "rejected" | "timeout" | "failed" | "error" | "denied" | "expired" | "withdrawn" | "deny" => "bad",
        _ => "quiet",
    }
}

fn tone(row: &Row, payload: &Value) -> &'static str {
    match row.event_type.as_str() {
        "request.refused" | "auth.refused" => return "bad",
        "run.wait.paused" | "run.wait.resumed" | "tool.answered" => return "quiet",
        "session.expired" | "session.closed" => return "quiet",
        "command.received" => return "quiet",
        "command.dispatched" => return "wait",
        _ => {}
    }
    let named = [
        row.approval_state.as_deref(),
        payload["status"].as_str(),
        payload["verdict"].as_str(),
    ];
    named.into_iter().flatten().next().map_or("quiet", tone_of)
}

fn what(row: &Row, payload: &Value) -> String {
    let status = payload["status"].as_str().unwrap_or_default();
    let word = match row.event_type.as_str() {
        "command.received" => "Asked",
        "command.validated" => match payload["verdict"].as_str() {
            Some("allow") => "Allowed",
            Some("ask") => "Needs approval",
            _ => "Judged",
        },
        "command.dispatched" => "Started",
        "command.completed" => match status {
            "ok" => "Done",
            "rejected" => "Refused",
            "timeout" => "Timed out",
            _ => "Failed",
        },
        "approval.requested" => match row.approval_state.as_deref() {
            Some("pending") => "Waits",
            _ => "Auto-approved",
        },
        "approval.approved" => "Approved",
        "approval.denied" => "Denied",
        "approval.expired" => "Expired",
        "approval.withdrawn" => "Withdrawn",
        // An approval was used or given up; without one it is the end of the act itself.
        "mcp.tool.applied" if payload["requested_by"].is_string() => "Let go",
        "mcp.tool.failed" if payload["requested_by"].is_string() => "Given up",
        "mcp.tool.applied" => "Done",
        "mcp.tool.failed" => "Failed",
        "run.wait.paused" => "Clock stopped",
        "run.wait.resumed" => "Clock goes on",
        "tool.called" => "Called",
        "tool.answered" => "Answered",
        "request.refused" | "auth.refused" => "Refused",
        "session.created" | "session.initialized" => "Came",
        "session.closed" => "Left",
        "session.expired" => "Ran out",
        "auth.login" => "Logged in",
        "auth.logout" => "Logged out",
        "token.created" => "Token made",
        "token.revoked" => "Token revoked",
        "policy.changed" => "Policy",
        "audit.checkpoint" => "Checkpoint",
        "audit.pruned" => "Pruned",
        other => return other.to_owned(),
    };
    word.to_owned()
}

/// The rest of the sentence.
pub(super) fn line(row: &Row, payload: &Value) -> String {
    sentence(&row.event_type, payload)
}

fn sentence(event_type: &str, payload: &Value) -> String {
    let of = |name: &str| payload[name].as_str().unwrap_or_default();
    let joined = |parts: &[&str], by: &str| {
        let said: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
        said.join(by)
    };
    match event_type {
        "command.received" => command(payload),
        "command.validated" => format!("by {}: {}", of("rule"), of("reason")),
        "command.dispatched" => format!("in {}, sandbox {}, network {}", of("cwd"), of("sandbox"), of("network")),
        "command.completed" => completed(payload),
        "approval.requested" => {
            let details = &payload["details"];
            let about = ["command", "question"].iter().find_map(|name| details[*name].as_str());
            joined(
                &[
                    about.unwrap_or(of("tool")),
                    details["reason"].as_str().unwrap_or_default(),
                ],
                " — ",
            )
        }
        "approval.approved" | "approval.denied" | "approval.expired" | "approval.withdrawn" => {
            let by = match of("decided_by") {
                "" => String::new(),
                by => format!("by {by}"),
            };
            joined(&[&by, of("reason")], ": ")
        }
        // Acts, and reviews that are waited for, have no time of their own.
        "run.wait.paused" | "run.wait.resumed" => match payload["remaining_ms"].as_u64() {
            Some(left) if left > 0 => format!("{} left of its time", spoken_millis(left)),
            _ => of("wait_state").to_owned(),
        },
        "tools.changed" => told_changes(payload),
        "run.agent.status_reported" => joined(&[of("agent_key"), of("reported_status")], " "),
        "tool.called" | "tool.answered" => joined(&[of("tool"), of("status"), of("error_code")], " "),
        "request.refused" | "auth.refused" => joined(
            &[of("method"), of("error_code"), of("error_message"), of("reason")],
            " ",
        ),
        "session.created" | "session.initialized" | "session.closed" | "session.expired" => {
            joined(&[of("client_name"), of("client_version"), of("transport")], " ")
        }
        "auth.login" | "auth.logout" => joined(&[of("role"), "by", of("by")], " "),
        "token.created" | "token.revoked" => joined(&[of("name"), of("role")], ", "),
        "policy.changed" => joined(&[of("reason"), of("digest")], " "),
        "audit.pruned" => format!("everything before {}", of("before")),
        // Kinds that are newer than this page say what they can.
        _ => joined(
            &[
                of("name"),
                of("agent"),
                of("command"),
                of("tool"),
                of("status"),
                of("reason"),
                of("error_code"),
            ],
            " ",
        ),
    }
}

/// A command as it was asked for; arguments of a line are the programs in it and add nothing.
pub(super) fn command(payload: &Value) -> String {
    let mut words = vec![payload["command"].as_str().unwrap_or_default()];
    if payload["tool"] != "execute_command" {
        let arguments = payload["arguments"].as_array().into_iter().flatten();
        words.extend(arguments.filter_map(Value::as_str));
    }
    words.join(" ")
}

fn completed(payload: &Value) -> String {
    let how = match (&payload["error_code"], &payload["exit_code"]) {
        (Value::String(code), _) => code.clone(),
        (_, Value::Number(code)) => format!("exit {code}"),
        _ => String::new(),
    };
    let took = spoken_millis(payload["duration_ms"].as_u64().unwrap_or(0));
    format!("{} — {how} after {took}", command(payload))
}

/// Whether an event is worth a line where every step of every call would be too much.
pub(super) fn is_news(kind: &str) -> bool {
    !matches!(
        kind,
        "command.received"
            | "command.validated"
            | "command.dispatched"
            | "mcp.tool.applied"
            | "run.wait.paused"
            | "run.wait.resumed"
            | "tool.answered"
            | "session.created"
            | "audit.checkpoint"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(event_type: &str, payload: &Value, expected: &str) {
        assert_eq!(sentence(event_type, payload), expected, "{event_type}");
    }

    #[test]
    fn a_report_of_a_run_says_what_was_reported() {
        let payload = json!({"agent_key": "dev", "status": "running", "reported_status": "half done"});
        check("run.agent.status_reported", &payload, "dev half done");
    }

    #[test]
    fn a_change_of_tools_names_them() {
        let payload = json!({"added": ["ask", "log"], "removed": [], "changed": ["commits"]});
        check("tools.changed", &payload, "added ask, log; changed commits");
    }

    #[test]
    fn only_what_has_a_time_of_its_own_has_some_of_it_left() {
        check(
            "run.wait.paused",
            &json!({"remaining_ms": 0, "wait_state": "mcp"}),
            "mcp",
        );
        check(
            "run.wait.resumed",
            &json!({"clock": "session", "wait_state": "owner_review"}),
            "owner_review",
        );
    }
}
