//! One event as one line: what a person who watches wants to know of it.

use countersign_gateway::audit::event::EventType;
use countersign_gateway::audit::row::Row;
use countersign_gateway::tools::declared::told_changes;
use serde_json::Value;

use crate::terminal::{Cell, Tone, shortened};

const SUMMARY_CHARS_MAX: usize = 100;

/// Widths of the columns before the summary, for lines that come one at a time.
pub(super) const WIDTHS: [usize; 4] = [24, 19, 18, 36];

/// Time, type, actor, correlation, summary.
pub(super) fn cells(row: &Row) -> Vec<Cell> {
    let payload = row.payload().unwrap_or_default();
    vec![
        Cell::new(Tone::Quiet, &row.timestamp),
        Cell::new(tone(row, &payload), &row.event_type),
        Cell::plain(format!("{}:{}", row.actor_type, row.actor_id)),
        Cell::new(Tone::Quiet, &row.correlation_id),
        Cell::plain(shortened(&summary(&row.event_type, &payload), SUMMARY_CHARS_MAX)),
    ]
}

/// How a status reads at a glance.
pub(super) fn status_tone(status: &str) -> Tone {
    match status {
        "ok" | "approved" | "applied" | "auto-approved" => Tone::Good,
        "running" | "pending" => Tone::Caution,
        "rejected" | "timeout" | "failed" | "error" | "denied" | "expired" | "withdrawn" => Tone::Bad,
        _ => Tone::Plain,
    }
}

/// A command as it was asked for; arguments of a line are the programs in it and add nothing.
pub(super) fn command(payload: &Value) -> String {
    let mut words = vec![text(payload, "command")];
    if payload["tool"] != "execute_command" {
        words.extend(
            payload["arguments"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str),
        );
    }
    words.join(" ")
}

fn tone(row: &Row, payload: &Value) -> Tone {
    let status = row.approval_state.as_deref().or(payload["status"].as_str());
    status.map_or(Tone::Plain, status_tone)
}

fn summary(event_type: &str, payload: &Value) -> String {
    let Some(kind) = EventType::parse(event_type) else {
        return String::new();
    };
    let of = |name: &str| text(payload, name);
    match kind {
        EventType::CommandReceived => command(payload),
        EventType::CommandValidated => format!("{} by {}: {}", of("verdict"), of("rule"), of("reason")),
        EventType::CommandDispatched => format!(
            "{} in {}, sandbox {}, network {}",
            of("how"),
            of("cwd"),
            of("sandbox"),
            of("network")
        ),
        EventType::CommandCompleted => completed(payload),
        EventType::ApprovalRequested => {
            let details = &payload["details"];
            format!("{}: {}", text(details, "command"), text(details, "reason"))
        }
        EventType::ActRequested => format!("{}: {} by {}", of("tool"), of("verdict"), of("rule")),
        EventType::ActApplied | EventType::ActFailed => {
            let said = [
                of("tool"),
                of("action"),
                of("system"),
                of("code"),
                of("outcome"),
                of("reason"),
            ];
            let said: Vec<_> = said.into_iter().filter(|word| !word.is_empty()).collect();
            said.join(" ")
        }
        // Acts, and reviews that are waited for, have no time of their own.
        EventType::WaitPaused | EventType::WaitResumed => match payload["remaining_ms"].as_u64() {
            Some(left) if left > 0 => format!("{left} ms left of its time"),
            _ => of("wait_state").to_owned(),
        },
        EventType::ApprovalApproved
        | EventType::ApprovalDenied
        | EventType::ApprovalExpired
        | EventType::ApprovalWithdrawn => told(&[of("decided_by"), of("reason")], ": "),
        EventType::ApproverAsked | EventType::ApproverUnreachable => {
            format!("{} {}: {}", of("approver"), of("outcome"), of("answer"))
        }
        EventType::CallbackReceived => words(&[of("route"), of("decision"), of("error"), of("reason")]),
        EventType::LabelRequested | EventType::LabelApplied | EventType::LabelRejected => words(&[
            of("repository"),
            &number(payload, "issue_number"),
            of("action"),
            of("reason"),
        ]),
        EventType::RunEnqueued
        | EventType::RunStarted
        | EventType::RunFinished
        | EventType::RunCanceled
        | EventType::RunAgentReady
        | EventType::RunPullRequestLinked
        | EventType::RunProfileResolved
        | EventType::RunServiceMessage => words(&[of("trigger_label"), of("agent_key"), of("status"), of("reason")]),
        EventType::RunStatusReported => words(&[of("trigger_label"), of("agent_key"), of("reported_status")]),
        EventType::RunChangesRequested
        | EventType::RunStageResolved
        | EventType::RunStageAmbiguous
        | EventType::RunPullRequestMissing => words(&[of("repository"), of("stage"), of("reason")]),
        EventType::WebhookReceived
        | EventType::WebhookDuplicate
        | EventType::WebhookIgnored
        | EventType::WebhookRefused => words(&[of("event"), of("action"), of("delivery"), of("reason")]),
        EventType::ToolsChanged => told_changes(payload),
        EventType::ToolCalled | EventType::ToolAnswered => format!("{} {}", of("tool"), of("status")),
        EventType::RequestRefused => format!("{} {}: {}", of("method"), of("error_code"), of("error_message")),
        EventType::SessionCreated
        | EventType::SessionInitialized
        | EventType::SessionClosed
        | EventType::SessionExpired => session(payload),
        EventType::AuthRefused => of("reason").to_owned(),
        EventType::AuthLogin | EventType::AuthLogout => format!("{} by {}", of("role"), of("by")),
        EventType::TokenCreated | EventType::TokenRevoked => format!("{} of {}", of("name"), of("role")),
        EventType::JobCreated
        | EventType::JobStarted
        | EventType::JobCompleted
        | EventType::JobFailed
        | EventType::JobCancelled
        | EventType::JobTimeout
        | EventType::JobMessage
        | EventType::JobInterrupt
        | EventType::JobProcessStarted
        | EventType::JobProcessCrashed
        | EventType::JobProcessRestarted
        | EventType::JobSessionCreated
        | EventType::JobSessionActive
        | EventType::JobSessionIdle
        | EventType::JobSessionRecovering
        | EventType::JobSessionRecovered
        | EventType::JobSessionTerminated => job(payload),
        EventType::PolicyChanged => match text(&payload["rule"], "pattern") {
            "" => format!("policy {}", of("digest")),
            pattern => format!("rule `{pattern}` into {}", of("file")),
        },
        EventType::PolicyRefused => of("reason").to_owned(),
        EventType::AuditCheckpoint => "checkpoint signed".to_owned(),
        EventType::AuditPruned => format!(
            "removed everything before {}, up to row {}",
            of("before"),
            payload["up_to_seq"]
        ),
    }
}

/// Which session, how it came, and whose it is.
fn session(payload: &Value) -> String {
    let client = [text(payload, "client_name"), text(payload, "client_version")].join(" ");
    let parts = [text(payload, "transport"), client.trim(), text(payload, "session_id")];
    let said: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    said.join(", ")
}

/// Which job, of which agent, and why if there is a reason.
fn job(payload: &Value) -> String {
    let parts = [
        text(payload, "agent"),
        text(payload, "job_id"),
        text(payload, "session_name"),
        text(payload, "error_code"),
        text(payload, "reason"),
    ];
    let said: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    said.join(", ")
}

/// Those of these that say anything.
fn told(parts: &[&str], between: &str) -> String {
    let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    parts.join(between)
}

fn words(parts: &[&str]) -> String {
    told(parts, " ")
}

fn number(payload: &Value, name: &str) -> String {
    payload[name]
        .as_u64()
        .map(|number| format!("#{number}"))
        .unwrap_or_default()
}

fn completed(payload: &Value) -> String {
    let how = match (&payload["error_code"], &payload["exit_code"]) {
        (Value::String(code), _) => format!(" {code}"),
        (_, Value::Number(code)) => format!(" exit {code}"),
        _ => String::new(),
    };
    format!(
        "{}{how} after {} ms: {}",
        text(payload, "status"),
        payload["duration_ms"],
        command(payload)
    )
}

fn text<'a>(payload: &'a Value, name: &str) -> &'a str {
    payload[name].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(event_type: &str, payload: &Value, line: &str) {
        assert_eq!(summary(event_type, payload), line, "{event_type}");
    }

    #[test]
    fn a_report_of_a_run_says_what_was_reported() {
        let payload = json!({"trigger_label": "run:dev", "agent_key": "dev", "status": "running", "reported_status": "half done"});
        check("run.agent.status_reported", &payload, "run:dev dev half done");
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
            &json!({"remaining_ms": 1500, "wait_state": "mcp"}),
            "1500 ms left of its time",
        );
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
