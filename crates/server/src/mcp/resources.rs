//! The resources we serve: the error table, whole and by code, for clients that want to know every code
//! beforehand, and the policy that a client is under.

use countersign_gateway::error::{ErrorCode, Refusal, brief};
use countersign_gateway::session::Caller;
use serde_json::{Map, Value, json};

use super::host::Host;
use super::prompts;
use super::revision::Era;

const ERRORS_URI: &str = "countersign://errors";
const POLICY_URI: &str = "countersign://policy";
const ERROR_TEMPLATE: &str = "countersign://errors/{code}";
const JSON_MIME: &str = "application/json";

pub(crate) fn list(era: Era) -> Vec<Value> {
    let errors = json!({
        "uri": ERRORS_URI,
        "name": "errors",
        "description": "every error code, with its JSON-RPC code, meaning and whether to try again",
        "mimeType": JSON_MIME,
    });
    let policy = json!({
        "uri": POLICY_URI,
        "name": "policy",
        "description": "the policy in force for you: what your commands may do, and when a person is asked",
        "mimeType": JSON_MIME,
    });
    vec![titled(errors, "Error table", era), titled(policy, "Policy", era)]
}

pub(crate) fn templates(era: Era) -> Vec<Value> {
    vec![titled(
        json!({
            "uriTemplate": ERROR_TEMPLATE,
            "name": "error",
            "description": "one error code, such as `COMMAND_NOT_ALLOWED`",
            "mimeType": JSON_MIME,
        }),
        "Error code",
        era,
    )]
}

/// Values for a part of a template; none when there is no such part.
pub(crate) fn values(template: &str, part: &str) -> Option<Vec<&'static str>> {
    (template == ERROR_TEMPLATE && part == "code").then(prompts::codes)
}

/// Whether there is something to read at an address.
pub(crate) fn exists(host: &Host, uri: &str) -> bool {
    uri == POLICY_URI || error(uri).is_some() || host.features.extra_resource(uri)
}

/// The `contents` of one resource.
pub(crate) fn read(host: &Host, caller: &Caller, params: &Map<String, Value>) -> Result<Value, Refusal> {
    let uri = uri(params)?;
    let content = match uri {
        POLICY_URI => host.service.policy(caller),
        _ => error(uri).ok_or_else(|| unknown(uri))?,
    };
    Ok(json!([{"uri": uri, "mimeType": JSON_MIME, "text": content.to_string()}]))
}

/// The address a request is about.
pub(crate) fn uri(params: &Map<String, Value>) -> Result<&str, Refusal> {
    match params.get("uri") {
        Some(Value::String(uri)) => Ok(uri),
        Some(_) => Err(Refusal::new(ErrorCode::InvalidParams, "`params.uri` must be text")),
        None => Err(Refusal::new(ErrorCode::InvalidParams, "`params.uri` is missing")),
    }
}

pub(crate) fn unknown(uri: &str) -> Refusal {
    let uri = &*brief(uri);
    let message = format!("there is no resource `{uri}`; `resources/list` names those there are");
    Refusal::new(ErrorCode::ResourceNotFound, message).with("uri", uri)
}

/// What stands at an address below that of the error table.
fn error(uri: &str) -> Option<Value> {
    match uri.strip_prefix(ERRORS_URI)? {
        "" => Some(ErrorCode::ALL.iter().copied().map(mapping).collect()),
        code => ErrorCode::parse(code.strip_prefix('/')?).map(mapping),
    }
}

fn titled(mut described: Value, title: &str, era: Era) -> Value {
    if era.has_structured_content() {
        described["title"] = title.into();
    }
    described
}

/// One McpErrorMapping.
fn mapping(code: ErrorCode) -> Value {
    json!({
        "internalCode": code.name(),
        "jsonRpcCode": code.json_rpc(),
        "messageTemplate": code.template(),
        "retryable": code.retryable(),
        "dataSchema": {
            "type": "object",
            "properties": {
                "errorCode": {"type": "string"},
                "details": {"type": "object"},
                "retryable": {"type": "boolean"},
                "correlation_id": {"type": "string"},
            },
            "required": ["errorCode", "details", "retryable", "correlation_id"],
        },
    })
}
