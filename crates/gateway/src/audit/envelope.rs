//! S2's McpRequestEnvelope: a message that a client sent, as a view of the record.
//!
//! Known are messages that were refused, calls of tools, and the handshakes that began sessions.
//! Requests that only look (lists, pings, reads) leave nothing. Requests refused at the door, before
//! anybody read them, are one message with their `address` and `count` for parameters.

use serde_json::{Map, Value, json};

use super::event::EventType;
use super::invocation::{Entry, arguments, client_id};

/// The events that tell of a message.
pub const TELLING: [EventType; 5] = [
    EventType::RequestRefused,
    EventType::AuthRefused,
    EventType::CommandReceived,
    EventType::ToolCalled,
    EventType::SessionInitialized,
];

/// The message that an event tells of; none for an event that tells of none. `session` is the id of
/// the session that the event names by its mark.
pub fn derive(entry: &Entry, session: Option<String>) -> Option<Value> {
    let payload = &entry.payload;
    let mut fields = Map::new();
    let (method, params) = match entry.event_type {
        EventType::RequestRefused | EventType::AuthRefused => (payload["method"].clone(), payload["params"].clone()),
        EventType::CommandReceived | EventType::ToolCalled => {
            let params = json!({"name": payload["tool"], "arguments": arguments(entry)});
            (json!("tools/call"), params)
        }
        EventType::SessionInitialized => (json!("initialize"), handshake(payload)),
        _ => return None,
    };
    let received = [&payload["received_at"], &payload["started_at"]];
    let received = received.into_iter().find(|at| at.is_string());
    let mut put = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    put("requestId", client_id(entry));
    put("method", method);
    if !params.is_null() {
        put("params", params);
    }
    if let Some(session) = session.or_else(|| entry.text("session_id").map(str::to_owned)) {
        put("sessionId", json!(session));
    }
    put(
        "receivedAt",
        received.map_or_else(|| json!(entry.timestamp.to_string()), Value::clone),
    );
    put("transport", payload["transport"].clone());
    if let EventType::RequestRefused | EventType::AuthRefused = entry.event_type {
        put("error_code", payload["error_code"].clone());
        put("error_message", payload["error_message"].clone());
    }
    put("correlation_id", json!(entry.correlation_id));
    Some(Value::Object(fields))
}

/// What a client said of itself, with the revision that was agreed upon.
fn handshake(payload: &Value) -> Value {
    let mut client = Map::new();
    for (name, recorded) in [("name", "client_name"), ("version", "client_version")] {
        if !payload[recorded].is_null() {
            client.insert(name.to_owned(), payload[recorded].clone());
        }
    }
    let capabilities = match &payload["capabilities"] {
        Value::Null => json!({}),
        said => said.clone(),
    };
    json!({
        "protocolVersion": payload["protocol_version"],
        "clientInfo": client,
        "capabilities": capabilities,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;

    fn entry(event_type: EventType, payload: Value) -> Entry {
        Entry {
            event_id: "e1".to_owned(),
            timestamp: Timestamp::from_millis(1_000),
            correlation_id: "c1".to_owned(),
            event_type,
            payload,
        }
    }

    #[test]
    fn a_refused_message_is_told_with_its_code_and_transport() {
        let refused = entry(
            EventType::RequestRefused,
            json!({"rpc_id": "7", "method": "", "received_at": "1970-01-01T00:00:00.900Z", "transport": "stdio",
                   "session_id": "sha256:ab", "error_code": "PARSE_ERROR", "error_message": "not JSON"}),
        );
        let told = json!({"requestId": 7, "method": "", "sessionId": "s1", "receivedAt": "1970-01-01T00:00:00.900Z",
                          "transport": "stdio", "error_code": "PARSE_ERROR", "error_message": "not JSON",
                          "correlation_id": "c1"});
        assert_eq!(derive(&refused, Some("s1".to_owned())), Some(told));
    }

    #[test]
    fn a_caller_nobody_knows_is_told_with_code_transport_and_count() {
        let refused = entry(
            EventType::AuthRefused,
            json!({"method": "", "received_at": "1970-01-01T00:00:00.900Z", "transport": "streamable-http",
                   "params": {"address": "127.0.0.1", "count": 7}, "error_code": "UNAUTHENTICATED",
                   "error_message": "this token is not in force"}),
        );
        let told = derive(&refused, None).expect("a message");
        assert_eq!(told["error_code"], "UNAUTHENTICATED");
        assert_eq!(told["transport"], "streamable-http");
        assert_eq!(told["params"]["count"], 7);
    }

    #[test]
    fn a_call_is_told_by_the_event_that_opened_it() {
        let received = entry(
            EventType::CommandReceived,
            json!({"rpc_id": "\"a\"", "tool": "execute_command", "command": "ls", "arguments": [], "request_id": "r1",
                   "transport": "stdio"}),
        );
        let told = json!({"requestId": "a", "method": "tools/call",
                          "params": {"name": "execute_command", "arguments": {"command": "ls", "request_id": "r1"}},
                          "receivedAt": "1970-01-01T00:00:01.000Z", "transport": "stdio", "correlation_id": "c1"});
        assert_eq!(derive(&received, None), Some(told));
        assert_eq!(derive(&entry(EventType::CommandValidated, json!({})), None), None);
    }

    #[test]
    fn a_handshake_is_told_by_the_session_it_began() {
        let began = entry(
            EventType::SessionInitialized,
            json!({"session_id": "sha256:ab", "transport": "sse", "client_name": "t", "protocol_version": "2025-11-25"}),
        );
        let told = derive(&began, None).expect("a message");
        assert_eq!(
            (&told["requestId"], &told["method"]),
            (&Value::Null, &json!("initialize"))
        );
        assert_eq!(
            told["sessionId"], "sha256:ab",
            "a session that is no longer kept goes by its mark"
        );
        assert_eq!(
            told["params"],
            json!({"protocolVersion": "2025-11-25", "clientInfo": {"name": "t"}, "capabilities": {}})
        );
    }
}
