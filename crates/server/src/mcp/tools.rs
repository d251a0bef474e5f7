//! `tools/list` and the parameters of `tools/call`.

use countersign_gateway::catalog::definition::{Hints, ToolDefinition};
use countersign_gateway::error::{ErrorCode, Refusal};
use serde_json::{Map, Value, json};

use super::jsonrpc::Id;
use super::revision::Era;

/// A `tools/call` whose parameters have the right shape. Whether they fit the tool is the gateway's
/// question.
pub(crate) struct CallRequest {
    pub(crate) tool: String,
    pub(crate) arguments: Map<String, Value>,
}

impl CallRequest {
    pub(crate) fn read(params: &Map<String, Value>) -> Result<Self, Refusal> {
        let tool = match params.get("name") {
            Some(Value::String(name)) => name.clone(),
            Some(_) => return Err(invalid("`params.name` must be text")),
            None => return Err(invalid("`params.name` is missing; it names the tool to call")),
        };
        let arguments = match params.get("arguments") {
            Some(Value::Object(arguments)) => arguments.clone(),
            Some(_) => return Err(invalid("`params.arguments` must be an object")),
            None => Map::new(),
        };
        Ok(Self { tool, arguments })
    }
}

/// What progress is reported under, if the client wants to hear of it.
pub(crate) fn progress_token(params: &Map<String, Value>) -> Result<Option<Id>, Refusal> {
    let token = match params.get("_meta") {
        None => None,
        Some(Value::Object(meta)) => meta.get("progressToken").cloned(),
        Some(_) => return Err(invalid("`params._meta` must be an object")),
    };
    token
        .map(Id::try_from)
        .transpose()
        .map_err(|_| invalid("`progressToken` must be an integer or short text"))
}

/// The tools as a revision knows them.
pub(crate) fn list(tools: &[ToolDefinition], era: Era) -> Vec<Value> {
    tools.iter().map(|tool| describe(tool, era)).collect()
}

fn describe(tool: &ToolDefinition, era: Era) -> Value {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    put("name", (*tool.name).into());
    if era.has_structured_content() {
        put("title", (*tool.title).into());
    }
    put("description", (*tool.description).into());
    put("inputSchema", tool.input_schema.clone());
    if era.has_structured_content() && !tool.output_schema.is_null() {
        put("outputSchema", tool.output_schema.clone());
    }
    if era.has_annotations() {
        let hints = annotations(&tool.hints);
        if !hints.is_empty() {
            put("annotations", Value::Object(hints));
        }
    }
    if era.has_structured_content() {
        put("_meta", json!({"countersign/version": tool.version}));
    }
    Value::Object(fields)
}

/// Hints that differ from what the protocol takes for granted: that a tool changes things, may destroy some, does more when
/// it is called again, and reaches beyond its own world. What only matters for a tool that changes something is not
/// said of one that does not.
fn annotations(hints: &Hints) -> Map<String, Value> {
    let Hints {
        read_only,
        destructive,
        idempotent,
        open_world,
    } = *hints;
    let said = [
        ("readOnlyHint", read_only, false),
        ("destructiveHint", destructive || read_only, true),
        ("idempotentHint", idempotent && !read_only, false),
        ("openWorldHint", open_world, true),
    ];
    let told = said.into_iter().filter(|(_, is, granted)| is != granted);
    told.map(|(name, is, _)| (name.to_owned(), is.into())).collect()
}

fn invalid(message: &str) -> Refusal {
    Refusal::new(ErrorCode::InvalidParams, message)
}
