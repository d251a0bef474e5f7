//! `/.well-known/mcp`: what is spoken here, for clients that look before they connect.

use axum::http::{HeaderMap, header};
use serde_json::{Value, json};

use crate::mcp::host::Host;
use crate::mcp::revision::{Era, SUPPORTED};
use crate::mcp::{methods, wire};

pub(super) fn server(host: &Host, scheme: &str, headers: &HeaderMap) -> Value {
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
        "capabilities": methods::capabilities(host, Era::Modern),
    })
}
