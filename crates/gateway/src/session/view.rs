//! Sessions and tokens as people and programs see them, under S2's field names.

use std::time::Duration;

use serde_json::{Value, json};

use super::Transport;
use super::credential::Credential;
use super::lifetime::Session;

/// S2's McpSession, with whose it is and what it speaks. Fields that have nothing to say are left out.
pub fn session(session: &Session, ttl: Duration) -> Value {
    let mut shown = json!({
        "sessionId": session.id.as_str(),
        "transport": session.transport.as_str(),
        "state": session.state().as_str(),
        "createdAt": session.created_at.to_string(),
        "lastActivityAt": session.last_activity_at.to_string(),
        "credential": session.credential.as_str(),
    });
    let client = &session.client;
    let optional = [
        ("clientName", client.name.clone()),
        ("clientVersion", client.version.clone()),
        ("protocolVersion", client.protocol_version.clone()),
        ("expiresAt", expires_at(session, ttl)),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            shown[name] = value.into();
        }
    }
    shown
}

/// A session over pipes ends with them, however long it was idle.
fn expires_at(session: &Session, ttl: Duration) -> Option<String> {
    match session.transport {
        Transport::Stdio | Transport::Terminal | Transport::Rest | Transport::Console => None,
        Transport::StreamableHttp | Transport::Sse => session.expires_at(ttl).map(|at| at.to_string()),
    }
}

/// What may be shown of a token: neither itself nor its digest.
pub fn token(token: &Credential) -> Value {
    json!({
        "id": token.id.as_str(),
        "role": token.role.as_str(),
        "name": token.name,
        "createdAt": token.created_at.to_string(),
        "revokedAt": token.revoked_at.map(|at| at.to_string()),
        "expiresAt": token.expires_at.map(|at| at.to_string()),
        "run": token.run,
    })
}
