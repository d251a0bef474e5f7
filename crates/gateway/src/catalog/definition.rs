//! S2's McpToolDefinition.

use std::borrow::Cow;

use serde_json::{Value, json};

/// Words that stand in this program, or in a file that declares a tool.
pub type Words = Cow<'static, str>;

/// A tool as clients see it.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolDefinition {
    pub name: Words,
    pub title: Words,
    pub description: Words,
    pub input_schema: Value,
    /// Null for a tool whose result is a text only.
    pub output_schema: Value,
    pub version: Words,
    pub hints: Hints,
}

/// What a tool promises of its result, or else what every tool says of a call that is not done, not done yet or went
/// wrong. Clients hold these against the schema too.
pub fn unless_refused(promised: &Value) -> Value {
    let refused = json!({
        "type": "object",
        "properties": {
            "status": {"type": "string", "enum": ["running", "pending", "rejected", "failed", "timeout"]},
            "request_id": {"type": "string"}, "message": {"type": "string"},
            "error_code": {"type": ["string", "null"], "description": "One of countersign://errors."},
            "error_message": {"type": ["string", "null"]}, "error_details": {"type": "object"},
        },
        "required": ["status"],
    });
    json!({"type": "object", "anyOf": [promised, refused]})
}

/// What the protocol calls annotations: hints to the client, never relied upon here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hints {
    pub read_only: bool,
    pub destructive: bool,
    pub idempotent: bool,
    pub open_world: bool,
}
