//! The resources we serve: the error table, for clients that want to know every code beforehand.

use countersign_gateway::error::{ErrorCode, Refusal};
use serde_json::{Map, Value, json};

use super::revision::Era;

const ERRORS_URI: &str = "countersign://errors";
const ERRORS_MIME: &str = "application/json";

pub(crate) fn list(era: Era) -> Value {
    let mut errors = json!({
        "uri": ERRORS_URI,
        "name": "errors",
        "description": "every error code, with its JSON-RPC code, meaning and whether to try again",
        "mimeType": ERRORS_MIME,
    });
    if era.has_structured_content() {
        errors["title"] = "Error table".into();
    }
    Value::Array(vec![errors])
}

/// The `contents` of one resource.
pub(crate) fn read(params: &Map<String, Value>) -> Result<Value, Refusal> {
    match params.get("uri") {
        Some(Value::String(uri)) if uri == ERRORS_URI => Ok(json!([{
            "uri": ERRORS_URI,
            "mimeType": ERRORS_MIME,
            "text": error_table().to_string(),
        }])),
        Some(Value::String(uri)) => {
            let message = format!("there is no resource `{uri}`; `resources/list` names those there are");
            Err(Refusal::new(ErrorCode::ResourceNotFound, message).with("uri", uri.as_str()))
        }
        Some(_) => Err(Refusal::new(ErrorCode::InvalidParams, "`params.uri` must be text")),
        None => Err(Refusal::new(ErrorCode::InvalidParams, "`params.uri` is missing")),
    }
}

/// One McpErrorMapping per code.
fn error_table() -> Value {
    let data_schema = json!({
        "type": "object",
        "properties": {
            "errorCode": {"type": "string"},
            "details": {"type": "object"},
            "retryable": {"type": "boolean"},
            "correlation_id": {"type": "string"},
        },
        "required": ["errorCode", "details", "retryable", "correlation_id"],
    });
    let mapping = |code: &ErrorCode| {
        json!({
            "internalCode": code.name(),
            "jsonRpcCode": code.json_rpc(),
            "messageTemplate": code.template(),
            "retryable": code.retryable(),
            "dataSchema": data_schema,
        })
    };
    ErrorCode::ALL.iter().map(mapping).collect()
}
