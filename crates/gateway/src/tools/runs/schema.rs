//! The tools of runs as clients see them, under the reference's names and fields.

use serde_json::{Value, json};

use super::ITEMS_MAX;
use crate::catalog::definition::{Hints, ToolDefinition};
use crate::limits;

const VERSION: &str = "1.0.0";
const REPORTS: Hints = Hints {
    read_only: false,
    destructive: false,
    idempotent: true,
    open_world: false,
};
const LOOKS: Hints = Hints {
    read_only: true,
    destructive: false,
    idempotent: true,
    open_world: false,
};

pub(super) fn definitions() -> Vec<ToolDefinition> {
    vec![report(), list(), lookup(), session()]
}

fn report() -> ToolDefinition {
    ToolDefinition {
        name: "run_status_report".into(),
        title: "Report on the run".into(),
        description: "Says in a few words how far this run is. People see it beside the run, and the record keeps it."
            .into(),
        input_schema: object(
            json!({"status": {
                "type": "string", "minLength": 1, "maxLength": limits::RUN_STATUS_CHARS_MAX,
                "description": "What is being done, in 1 to 100 characters.",
            }}),
            &["status"],
        ),
        output_schema: result(json!({"reported_status": {"type": "string"}})),
        version: VERSION.into(),
        hints: REPORTS,
    }
}

fn list() -> ToolDefinition {
    ToolDefinition {
        name: "self_improve_runs_list".into(),
        title: "List runs".into(),
        description: "Lists the runs of a repository, the newest first.".into(),
        input_schema: object(
            json!({
                "repository_full_name": repository(),
                "page": {"type": "integer", "minimum": 1, "description": "Which page; the first when left out."},
                "limit": limit(),
            }),
            &[],
        ),
        output_schema: result(json!({
            "page": {"type": "integer"}, "limit": {"type": "integer"}, "has_next": {"type": "boolean"}, "items": items(),
        })),
        version: VERSION.into(),
        hints: LOOKS,
    }
}

fn lookup() -> ToolDefinition {
    let number = |what: &str| {
        let description = format!("The number of the {what}.");
        json!({"type": "integer", "minimum": 1, "description": description})
    };
    ToolDefinition {
        name: "self_improve_run_lookup".into(),
        title: "Find runs".into(),
        description: "Finds the runs of an issue or a pull request, the newest first.".into(),
        input_schema: object(
            json!({
                "repository_full_name": repository(), "issue_number": number("issue"),
                "pull_request_number": number("pull request"), "limit": limit(),
            }),
            &[],
        ),
        output_schema: result(json!({"items": items()})),
        version: VERSION.into(),
        hints: LOOKS,
    }
}

fn session() -> ToolDefinition {
    ToolDefinition {
        name: "self_improve_session_get".into(),
        title: "Read a run's session".into(),
        description: "Gives a run with all that its agent did, and where to put it for a closer look.".into(),
        input_schema: object(
            json!({"run_id": {"type": "string", "minLength": 1, "description": "The run."}}),
            &["run_id"],
        ),
        output_schema: result(json!({
            "run": {"type": "object"}, "tmp_directory": {"type": "string"}, "tmp_file_path": {"type": "string"},
            "codex_session_json": {"type": "object"},
        })),
        version: VERSION.into(),
        hints: LOOKS,
    }
}

fn repository() -> Value {
    json!({"type": "string", "minLength": 3, "description": "`owner/name`; the run's own when left out."})
}

fn limit() -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": ITEMS_MAX, "description": "How many; 50 when left out."})
}

fn items() -> Value {
    json!({"type": "array", "items": {"type": "object"}})
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// The fields of an answer, or those of a refusal.
fn result(mut properties: Value) -> Value {
    properties["status"] = json!({"type": "string", "enum": ["ok", "pending", "rejected", "failed"]});
    for name in ["message", "error_code", "error_message", "approval_id"] {
        properties[name] = json!({"type": "string"});
    }
    for name in ["error", "error_details"] {
        properties[name] = json!({"type": "object"});
    }
    properties["retryable"] = json!({"type": "boolean"});
    json!({"type": "object", "properties": properties, "required": ["status"]})
}
