//! Outgoing messages as they stand on the wire. Each becomes one line of bytes, newline excluded.

use std::time::Duration;

use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::CorrelationId;
use countersign_gateway::service::Answer;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::jsonrpc::Id;
use super::revision::Era;

pub(crate) const NAME: &str = "countersign";
const TITLE: &str = "Countersign";
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

const DUPLICATE: &str = "countersign/duplicate";

/// Details the protocol expects directly in `error.data`.
const LIFTED: [&str; 4] = ["supported", "requested", "uri", "requiredCapabilities"];

/// Marks the answer to a request that had been made before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Occasion {
    First,
    Duplicate,
}

pub(crate) fn result(id: &Id, result: &Value) -> Vec<u8> {
    #[derive(Serialize)]
    struct Response<'a> {
        jsonrpc: &'static str,
        id: &'a Id,
        result: &'a Value,
    }
    bytes(&Response {
        jsonrpc: "2.0",
        id,
        result,
    })
}

/// A result that is JSON text already.
pub(crate) fn written_result(id: &Id, result: &[u8]) -> Vec<u8> {
    let id = id.to_json();
    let parts = [
        br#"{"jsonrpc":"2.0","id":"#,
        id.as_bytes(),
        br#","result":"#,
        result,
        b"}",
    ];
    parts.concat()
}

/// What stands in a batch for an answer that would make it too long. Whatever the request did is done.
pub(crate) fn too_long_for_batch(answer: &[u8]) -> Vec<u8> {
    #[derive(Deserialize)]
    struct Answered {
        #[serde(default)]
        id: Value,
    }
    let code = ErrorCode::LimitExceeded;
    let id = serde_json::from_slice(answer).map_or(Value::Null, |Answered { id }| id);
    bytes(&json!({
        "jsonrpc": "2.0",
        "id": id,
        "error": {
            "code": code.json_rpc(),
            "message": "the answers to this batch are too long together; the request was done, `command_status` tells what \
                a command wrote, and requests with long answers are best sent alone",
            "data": {"errorCode": code.name(), "details": {}, "retryable": false},
        },
    }))
}

pub(crate) fn error(id: Option<&Id>, code: i32, refusal: &Refusal, correlation: &CorrelationId) -> Vec<u8> {
    let details = refusal.details.clone();
    // A refusal that comes from further inside already has a name in the record.
    let correlation = refusal.correlation_id.as_deref().unwrap_or(correlation);
    let mut data = Map::new();
    data.insert("errorCode".to_owned(), refusal.code.name().into());
    for name in LIFTED {
        if let Some(value) = details.get(name) {
            data.insert(name.to_owned(), value.clone());
        }
    }
    data.insert("details".to_owned(), Value::Object(details));
    data.insert("retryable".to_owned(), refusal.retryable().into());
    data.insert("correlation_id".to_owned(), correlation.as_str().into());
    bytes(&json!({
        "jsonrpc": "2.0",
        "id": id,
        "error": {"code": code, "message": refusal.message, "data": data},
    }))
}

/// A tool's answer.
pub(crate) fn answer(id: &Id, answer: &Answer, era: Era, occasion: Occasion) -> Vec<u8> {
    #[derive(Serialize)]
    struct Response<'a> {
        jsonrpc: &'static str,
        id: &'a Id,
        result: CallToolResult<'a>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct CallToolResult<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        result_type: Option<&'static str>,
        content: [Text<'a>; 1],
        #[serde(skip_serializing_if = "Option::is_none")]
        structured_content: Option<&'a Value>,
        is_error: bool,
        #[serde(rename = "_meta", skip_serializing_if = "Map::is_empty")]
        meta: Map<String, Value>,
    }
    #[derive(Serialize)]
    struct Text<'a> {
        r#type: &'static str,
        text: &'a str,
    }
    let mut meta = match era {
        Era::Legacy(_) => Map::new(),
        Era::Modern => modern_meta(),
    };
    if occasion == Occasion::Duplicate {
        meta.insert(DUPLICATE.to_owned(), Value::Bool(true));
    }
    bytes(&Response {
        jsonrpc: "2.0",
        id,
        result: CallToolResult {
            result_type: (era == Era::Modern).then_some("complete"),
            content: [Text {
                r#type: "text",
                text: &answer.text,
            }],
            structured_content: Some(&answer.structured)
                .filter(|content| era.has_structured_content() && !content.is_null()),
            is_error: answer.is_error,
            meta,
        },
    })
}

/// A tool's answer as a result inside another.
pub(crate) fn tool_result(answer: &Answer) -> Value {
    let mut result = json!({
        "content": [{"type": "text", "text": answer.text}],
        "isError": answer.is_error,
    });
    if !answer.structured.is_null() {
        result["structuredContent"] = answer.structured.clone();
    }
    result
}

/// A result with what every result of its era carries.
pub(crate) fn completed(mut result: Value, era: Era) -> Value {
    if era == Era::Modern
        && let Value::Object(fields) = &mut result
    {
        fields.entry("resultType").or_insert_with(|| "complete".into());
        if let Value::Object(meta) = fields.entry("_meta").or_insert_with(|| Map::new().into()) {
            meta.extend(modern_meta());
        }
    }
    result
}

/// Marks a result as the answer to a request that had been made before.
pub(crate) fn marked(mut result: Value, occasion: Occasion) -> Value {
    if occasion == Occasion::Duplicate
        && let Value::Object(fields) = &mut result
        && let Value::Object(meta) = fields.entry("_meta").or_insert_with(|| Map::new().into())
    {
        meta.insert(DUPLICATE.to_owned(), Value::Bool(true));
    }
    result
}

/// A question of ours.
pub(crate) fn request(id: &str, method: &str, params: &Value) -> Vec<u8> {
    bytes(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

pub(crate) fn notification(method: &str, params: &Value) -> Vec<u8> {
    bytes(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
}

pub(crate) fn progress(token: &Id, progress: u64, total: Option<u64>, message: Option<&str>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Notification<'a> {
        jsonrpc: &'static str,
        method: &'static str,
        params: ProgressParams<'a>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct ProgressParams<'a> {
        progress_token: &'a Id,
        progress: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        total: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<&'a str>,
    }
    bytes(&Notification {
        jsonrpc: "2.0",
        method: "notifications/progress",
        params: ProgressParams {
            progress_token: token,
            progress,
            total,
            message,
        },
    })
}

/// Who we are, in the words of a revision.
pub(crate) fn server_info(era: Era) -> Value {
    if era.has_structured_content() {
        json!({"name": NAME, "title": TITLE, "version": VERSION})
    } else {
        json!({"name": NAME, "version": VERSION})
    }
}

/// What every modern result carries beside its content.
pub(crate) fn modern_meta() -> Map<String, Value> {
    Map::from_iter([(
        "io.modelcontextprotocol/serverInfo".to_owned(),
        server_info(Era::Modern),
    )])
}

pub(crate) fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}

pub(crate) fn bytes(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("messages have text keys and write to memory")
}
