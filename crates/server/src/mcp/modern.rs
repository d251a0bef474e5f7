//! The modern era's envelope: what each request must say about itself.

use countersign_gateway::error::{ErrorCode, Refusal, brief};
use serde_json::{Map, Value};

use super::client::{Capabilities, Client, Level, LogFilter};
use super::revision::{Era, MODERN, SUPPORTED};

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// Whether a request is to be understood without a session.
pub(crate) fn is_modern(method: &str, params: &Map<String, Value>) -> bool {
    // Only the modern era has `server/discover`, so a client that forgets its envelope there is told
    // what is missing instead of being sent to a handshake it does not know.
    method == "server/discover" || meta(params).is_some_and(|meta| meta.contains_key(VERSION))
}

/// Reads the envelope: what this client can do and wants to hear, for this request.
pub(crate) fn read(params: &Map<String, Value>) -> Result<Client, Refusal> {
    let invalid = |message: String| Refusal::new(ErrorCode::InvalidParams, message);
    let meta = meta(params);
    let get = |name: &str| meta.and_then(|meta| meta.get(name));
    match get(VERSION) {
        Some(Value::String(version)) if version == MODERN => {}
        Some(Value::String(version)) => {
            let version = &*brief(version);
            let message = format!("protocol version `{version}` is not spoken without a session; use `{MODERN}`");
            return Err(Refusal::new(ErrorCode::UnsupportedProtocolVersion, message)
                .with("supported", SUPPORTED.to_vec())
                .with("requested", version));
        }
        Some(_) => return Err(invalid(format!("`_meta[\"{VERSION}\"]` must be text"))),
        None => return Err(invalid(format!("`_meta[\"{VERSION}\"]` is missing"))),
    }
    let capabilities = match get(CAPABILITIES) {
        Some(Value::Object(declared)) => Capabilities::read(declared),
        Some(_) => return Err(invalid(format!("`_meta[\"{CAPABILITIES}\"]` must be an object"))),
        None => return Err(invalid(format!("`_meta[\"{CAPABILITIES}\"]` is missing"))),
    };
    let level = get(LOG_LEVEL).map(Level::read).transpose()?;
    Ok(Client {
        era: Era::Modern,
        capabilities,
        logs: LogFilter::of(level),
    })
}

fn meta(params: &Map<String, Value>) -> Option<&Map<String, Value>> {
    params.get("_meta").and_then(Value::as_object)
}

/// The revision a request says it speaks.
pub(crate) fn version(params: &Map<String, Value>) -> Option<&str> {
    meta(params)?.get(VERSION)?.as_str()
}
