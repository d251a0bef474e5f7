//! `/.well-known/mcp`: what is spoken here, for clients that look before they connect.

use axum::http::{HeaderMap, header};
use serde_json::{Value, json};

use crate::mcp::revision::SUPPORTED;
use crate::mcp::wire;

pub(super) fn server(scheme: &str, headers: &HeaderMap, capabilities: &Value) -> Value {
    // The name the client used is the one by which it reaches us; the guard has looked at it.
    let name = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let at = |path: &str| match name {
        Some(name) => format!("{scheme}://{name}{path}"),
        None => path.to_owned(),
    };
    json!({
        "name": wire::NAME,
        "version": wire::VERSION,
        "protocolVersions": SUPPORTED,
        "transports": [
            {"type": "streamable-http", "url": at("/mcp")},
            {"type": "sse", "url": at("/sse")},
        ],
        "capabilities": capabilities,
    })
}
