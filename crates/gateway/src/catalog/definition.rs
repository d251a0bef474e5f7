//! S2's McpToolDefinition.

use serde_json::Value;

/// A tool as clients see it.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolDefinition {
    pub name: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    pub input_schema: Value,
    /// Null for a tool whose result is a text only.
    pub output_schema: Value,
    pub version: &'static str,
    pub hints: Hints,
}

/// What the protocol calls annotations: hints to the client, never relied upon here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hints {
    pub read_only: bool,
    pub destructive: bool,
    pub idempotent: bool,
    pub open_world: bool,
}
