//! The schemas have teeth: what a revision does not know is found, whatever kind of message it is in.

use serde_json::{Value, json};

use crate::shared::installed;
use crate::shared::schema::Wire;

const REVISIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];

/// Whether an answer to a method passes in a revision.
fn passes(revision: &str, method: &str, answer: &Value) -> bool {
    let mut wire = Wire::of(revision);
    let meta = json!({"io.modelcontextprotocol/protocolVersion": revision});
    let params = if revision == "2026-07-28" {
        json!({"_meta": meta})
    } else {
        json!({})
    };
    wire.sent(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}));
    wire.check(answer).is_ok()
}

fn result(result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "result": result})
}

#[test]
fn every_revision_refuses_a_wrong_answer_and_takes_a_right_one() {
    if installed::find("schemas").is_none() {
        return;
    }
    let text = json!([{"type": "text", "text": "hi"}]);
    let right = json!({"content": text, "resultType": "complete"});
    for revision in REVISIONS {
        assert!(passes(revision, "tools/call", &result(right.clone())), "{revision}");
        for wrong in [
            json!({"resultType": "complete"}),
            json!({"content": "hi", "resultType": "complete"}),
            json!({"content": [{"type": "text"}], "resultType": "complete"}),
            json!({"content": text, "isError": "no", "resultType": "complete"}),
        ] {
            assert!(
                !passes(revision, "tools/call", &result(wrong.clone())),
                "{revision}: {wrong}"
            );
        }
        let error = |error: Value| json!({"jsonrpc": "2.0", "id": 1, "error": error});
        assert!(passes(
            revision,
            "ping",
            &error(json!({"code": -32600, "message": "no"}))
        ));
        assert!(!passes(
            revision,
            "ping",
            &error(json!({"code": "-32600", "message": "no"}))
        ));
        assert!(!passes(revision, "ping", &error(json!({"code": -32600}))));
        assert!(!passes(
            revision,
            "tools/list",
            &result(json!({"tools": [{"name": "x"}]}))
        ));
    }
}

#[test]
fn what_only_some_revisions_know_is_told_apart() {
    if installed::find("schemas").is_none() {
        return;
    }
    let tools = json!({"tools": []});
    assert!(passes("2025-11-25", "tools/list", &result(tools.clone())));
    assert!(!passes("2026-07-28", "tools/list", &result(tools)));
    let unsupported = |data: Value| {
        let error = json!({"code": -32022, "message": "no", "data": data});
        json!({"jsonrpc": "2.0", "id": 1, "error": error})
    };
    let named = json!({"supported": ["2026-07-28"], "requested": "1999-01-01"});
    assert!(passes("2026-07-28", "tools/list", &unsupported(named)));
    assert!(!passes("2026-07-28", "tools/list", &unsupported(json!({}))));
    let mut legacy = Wire::of("2025-06-18");
    assert!(legacy.check(&json!([result(json!({}))])).is_err());
    let mut batches = Wire::of("2025-03-26");
    assert!(batches.check(&json!([result(json!({}))])).is_ok());
}

#[test]
fn wrong_notifications_are_found() {
    if installed::find("schemas").is_none() {
        return;
    }
    for revision in REVISIONS {
        let mut wire = Wire::of(revision);
        let progress = |params: Value| json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        assert!(
            wire.check(&progress(json!({"progressToken": "t", "progress": 1})))
                .is_ok()
        );
        assert!(wire.check(&progress(json!({"progress": 1}))).is_err(), "{revision}");
        assert!(
            wire.check(&json!({"method": "notifications/progress"})).is_err(),
            "{revision}"
        );
    }
}

#[test]
fn messages_are_found_in_bodies_of_both_kinds() {
    let pong = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
    let mut wire = Wire::of("2025-11-25");
    wire.sent(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}));
    assert_eq!(wire.received_body(&pong.to_string()), std::slice::from_ref(&pong));
    let stream = format!(
        "id: 1\nretry: 3000\ndata:\n\n: alive\n\nevent: endpoint\ndata: /messages\n\nevent: message\nid: 2\ndata: {pong}\n\n"
    );
    assert_eq!(wire.received_body(&stream), std::slice::from_ref(&pong));
    assert_eq!(wire.received_body(&stream.replace('\n', "\r\n")), [pong]);
}
