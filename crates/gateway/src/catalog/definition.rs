//! S2's McpToolDefinition.

use std::borrow::Cow;

use serde_json::Value;

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

/// What the protocol calls annotations: hints to the client, never relied upon here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hints {
    pub read_only: bool,
    pub destructive: bool,
    pub idempotent: bool,
    pub open_world: bool,
}
