//! Whatever comes in, nothing breaks and every request is answered once.

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::client::Client;

#[derive(Clone, Debug)]
enum Sent {
    /// A request with an id of its own.
    Request(&'static str, Value),
    /// Bytes that may or may not mean something.
    Noise(Vec<u8>),
    /// A request with one byte changed.
    Damaged(&'static str, Value, usize, u8),
}

fn request() -> impl Strategy<Value = (&'static str, Value)> {
    prop_oneof![
        Just(("ping", json!({}))),
        Just(("tools/list", json!({}))),
        Just(("tools/list", json!({"cursor": "x"}))),
        Just((
            "tools/call",
            json!({"name": "echo", "arguments": {"a": [1, 2, {"b": null}]}})
        )),
        Just(("tools/call", json!({"name": "report", "_meta": {"progressToken": "p"}}))),
        Just(("tools/call", json!({"name": "wait"}))),
        Just(("tools/call", json!({"name": "panic"}))),
        Just(("tools/call", json!({"name": 5}))),
        Just(("tools/call", json!({}))),
        Just(("resources/read", json!({"uri": "countersign://errors"}))),
        Just(("initialize", json!({"protocolVersion": "2025-11-25"}))),
        Just(("server/discover", json!({}))),
        Just(("unheard/of", json!({"x": "y"}))),
        Just((
            "tools/call",
            json!({"name": "echo", "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            }})
        )),
    ]
}

fn sent() -> impl Strategy<Value = Sent> {
    prop_oneof![
        4 => request().prop_map(|(method, params)| Sent::Request(method, params)),
        2 => vec(any::<u8>(), 0..60).prop_map(Sent::Noise),
        1 => r#"[\[\]{}",:0-9a-z\\]{0,60}"#.prop_map(|text| Sent::Noise(text.into_bytes())),
        2 => (request(), any::<usize>(), any::<u8>())
            .prop_map(|((method, params), at, byte)| Sent::Damaged(method, params, at, byte)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_is_answered_exactly_once(
        handshake in any::<bool>(),
        revision in prop_oneof![Just("2024-11-05"), Just("2025-03-26"), Just("2025-11-25")],
        messages in vec(sent(), 0..30),
        piece in 1..200_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut expected = HashMap::new();
        let mut stream = Vec::new();
        for (number, message) in messages.iter().enumerate() {
            let line = |id: &str, method: &str, params: &Value| {
                json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string().into_bytes()
            };
            match message {
                Sent::Request(method, params) => {
                    let id = format!("request-{number}");
                    stream.extend(line(&id, method, params));
                    expected.insert(id, 0);
                }
                Sent::Noise(bytes) => stream.extend(bytes.iter().filter(|byte| **byte != b'\n')),
                Sent::Damaged(method, params, at, byte) => {
                    let mut bytes = line(&format!("damaged-{number}"), method, params);
                    let at = at % bytes.len();
                    bytes[at] = if *byte == b'\n' { b' ' } else { *byte };
                    stream.extend(bytes);
                }
            }
            stream.push(b'\n');
        }
        let answers = runtime.block_on(async {
            let mut client = if handshake { Client::of(revision).await } else { Client::new() };
            for piece in stream.chunks(piece) {
                client.raw(piece).await;
                tokio::task::yield_now().await;
            }
            client.end().await
        });
        for answer in answers {
            if answer["method"] == "notifications/progress" {
                continue;
            }
            prop_assert!(answer["result"].is_object() != answer["error"].is_object(), "{answer}");
            if let Some(count) = answer["id"].as_str().and_then(|id| expected.get_mut(id)) {
                *count += 1;
            }
        }
        prop_assert!(expected.values().all(|count| *count == 1), "{expected:?}");
    }
}
