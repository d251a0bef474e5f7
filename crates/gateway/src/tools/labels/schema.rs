//! The label tools as clients see them.

use serde_json::{Value, json};

use crate::catalog::definition::{Hints, ToolDefinition};
use crate::github::vocabulary::{LABEL_CHARS_MAX, LABELS_MAX};

const VERSION: &str = "1.0.0";
const LOOKS: Hints = Hints {
    read_only: true,
    destructive: false,
    idempotent: true,
    open_world: true,
};
const CHANGES: Hints = Hints {
    read_only: false,
    destructive: false,
    idempotent: true,
    open_world: true,
};

pub(super) fn definitions() -> Vec<ToolDefinition> {
    vec![
        tool(
            "github_labels_list",
            "List labels",
            "Lists the labels of an issue or a pull request.",
            object(json!({}), &[]),
            LOOKS,
        ),
        tool(
            "github_labels_add",
            "Add labels",
            "Puts labels on an issue or a pull request; the others stay.",
            object(json!({"labels": labels(1, "The labels to put on.")}), &["labels"]),
            CHANGES,
        ),
        tool(
            "github_labels_remove",
            "Remove labels",
            "Takes labels off an issue or a pull request; one that is not there is no error.",
            object(json!({"labels": labels(1, "The labels to take off.")}), &["labels"]),
            Hints {
                destructive: true,
                ..CHANGES
            },
        ),
        tool(
            "github_labels_transition",
            "Exchange labels",
            "Takes labels off and puts labels on in one step, so that nobody sees the issue in between. Give at least one \
             of the two lists.",
            object(
                json!({
                    "remove_labels": labels(0, "The labels to take off."),
                    "add_labels": labels(0, "The labels to put on."),
                }),
                &[],
            ),
            Hints {
                destructive: true,
                ..CHANGES
            },
        ),
    ]
}

fn tool(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    input_schema: Value,
    hints: Hints,
) -> ToolDefinition {
    ToolDefinition {
        name: name.into(),
        title: title.into(),
        description: description.into(),
        input_schema,
        output_schema: result(),
        version: VERSION.into(),
        hints,
    }
}

fn labels(least: usize, description: &str) -> Value {
    json!({
        "type": "array", "minItems": least, "maxItems": LABELS_MAX, "description": description,
        "items": {"type": "string", "minLength": 1, "maxLength": LABEL_CHARS_MAX},
    })
}

fn object(mut properties: Value, required: &[&str]) -> Value {
    properties["issue_number"] = json!({
        "type": "integer", "minimum": 1,
        "description": "The issue or pull request; the run's own issue when left out.",
    });
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn result() -> Value {
    json!({
        "type": "object",
        "properties": {
            "status": {"type": "string", "enum": ["ok", "rejected", "pending", "failed"]},
            "labels": {"type": "array", "items": {"type": "string"}},
            "message": {"type": "string"},
            "error": {"type": "object"},
            "error_code": {"type": "string", "description": "One of countersign://errors."},
            "error_message": {"type": "string"},
            "error_details": {"type": "object"},
            "retryable": {"type": "boolean"},
            "approval_id": {"type": "string"},
        },
        "required": ["status"],
    })
}
