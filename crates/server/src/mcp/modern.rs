//! The modern era's envelope: what each request must say about itself.

use countersign_gateway::error::{ErrorCode, Refusal};
use serde_json::{Map, Value};

use super::revision::{MODERN, SUPPORTED};

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// Whether a request is to be understood without a session.
pub(crate) fn is_modern(method: &str, params: &Map<String, Value>) -> bool {
    // Only the modern era has `server/discover`, so a client that forgets its envelope there is told
    // what is missing instead of being sent to a handshake it does not know.
    method == "server/discover" || meta(params).is_some_and(|meta| meta.contains_key(VERSION))
}

/// Checks the envelope.
pub(crate) fn check(params: &Map<String, Value>) -> Result<(), Refusal> {
    let invalid = |message: String| Err(Refusal::new(ErrorCode::InvalidParams, message));
    let meta = meta(params);
    match meta.and_then(|meta| meta.get(VERSION)) {
        Some(Value::String(version)) if version == MODERN => {}
        Some(Value::String(version)) => {
            let message = format!("protocol version `{version}` is not spoken without a session; use `{MODERN}`");
            return Err(Refusal::new(ErrorCode::UnsupportedProtocolVersion, message)
                .with("supported", SUPPORTED.to_vec())
                .with("requested", version.as_str()));
        }
        Some(_) => return invalid(format!("`_meta[\"{VERSION}\"]` must be text")),
        None => return invalid(format!("`_meta[\"{VERSION}\"]` is missing")),
    }
    match meta.and_then(|meta| meta.get(CAPABILITIES)) {
        Some(Value::Object(_)) => Ok(()),
        Some(_) => invalid(format!("`_meta[\"{CAPABILITIES}\"]` must be an object")),
        None => invalid(format!("`_meta[\"{CAPABILITIES}\"]` is missing")),
    }
}

fn meta(params: &Map<String, Value>) -> Option<&Map<String, Value>> {
    params.get("_meta").and_then(Value::as_object)
}

/// The revision a request says it speaks.
pub(crate) fn version(params: &Map<String, Value>) -> Option<&str> {
    meta(params)?.get(VERSION)?.as_str()
}
