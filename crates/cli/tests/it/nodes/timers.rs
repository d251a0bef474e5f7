//! What happens by itself happens once, however many nodes are there to do it.

use std::thread;

use serde_json::json;

use super::field::{A, Field, attempt};
use crate::bench::Bench;
use crate::client::eventually;
use crate::web::legacy;

#[test]
fn questions_and_sessions_expire_once_and_what_a_dead_node_left_is_closed_once() {
    let settings = "workspace_root: .\napproval_policy: {mode: never, timeout_ms: 2000}\nsessions: {ttl_seconds: 8}\n\
        tools: {execute_command: {approval: required}}\ncommand_policy: {allowlist: [sleep, touch]}\n";
    let Some(mut field) = Field::of(3, Bench::new().config(settings)) else {
        return;
    };
    let session = field.session(A);
    // One call asks and is not answered, another is at work when its node dies.
    let (address, headers) = (field.web(A).address.clone(), session.clone());
    let left = thread::spawn(move || {
        let call = json!({"name": "execute_process", "arguments": {"file": "sleep", "args": ["60"]}});
        attempt(&address, &headers, &legacy(1, "tools/call", call))
    });
    let asked = field.call(A, &session, 2, "execute_command", json!({"command": "touch made"}));
    assert_eq!(asked["error_code"], "APPROVAL_EXPIRED", "{asked}");
    eventually("the command is at work", || {
        field.count("SELECT count(*) FROM open_commands") == 1
    });
    field.kill(A);
    drop(left.join());
    field.age(A);
    eventually("what it left is closed", || {
        field.count("SELECT count(*) FROM open_commands") == 0
    });
    eventually("the session is over", || {
        field.count("SELECT count(*) FROM mcp_sessions WHERE state = 'expired'") == 1
    });
    let count = |kind: &str| field.count(&format!("SELECT count(*) FROM flow_events WHERE event_type = '{kind}'"));
    assert_eq!(count("approval.expired"), 1);
    assert_eq!(count("session.expired"), 1);
    let abandoned = "SELECT count(*) FROM flow_events WHERE event_type = 'command.completed'
        AND payload::json ->> 'error_code' = 'ABANDONED'";
    assert_eq!(field.count(abandoned), 1);
    field.prove();
}
