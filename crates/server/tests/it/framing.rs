//! Lines and frames: what is cut how, and what is said about what cannot be read.

use serde_json::{Value, json};

use crate::client::{Client, error_of, options};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

fn pong() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "result": {}})
}

/// Sends one line and compares the answer's id, code and name.
async fn check(line: impl AsRef<[u8]>, id: Value, code: i64, name: &str) {
    let mut client = Client::of("2025-11-25").await;
    client.raw(line.as_ref()).await;
    client.raw("\n").await;
    let answer = client.next().await;
    let shown = String::from_utf8_lossy(&line.as_ref()[..line.as_ref().len().min(200)]).into_owned();
    assert_eq!(answer["id"], id, "{shown}");
    assert_eq!(error_of(&answer), (code, name), "{shown}");
    client.expect_silence().await;
}

#[tokio::test]
async fn frames_that_are_no_messages_are_refused_by_the_right_code() {
    let parse = (-32700, "PARSE_ERROR");
    let invalid = (-32600, "INVALID_REQUEST");
    let params = (-32602, "INVALID_PARAMS");
    let cases: &[(&str, Value, (i64, &str))] = &[
        ("{", Value::Null, parse),
        ("nonsense", Value::Null, parse),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping"} x"#, Value::Null, parse),
        (r#"{"jsonrpc":"2.0","id":7,"method":"\ud800"}"#, json!(7), parse),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","result":{}}"#,
            json!(7),
            invalid,
        ),
        ("1", Value::Null, invalid),
        ("null", Value::Null, invalid),
        ("\"text\"", Value::Null, invalid),
        ("{}", Value::Null, invalid),
        (r#"{"id":7,"method":"ping"}"#, json!(7), invalid),
        (r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#, json!(7), invalid),
        (r#"{"jsonrpc":2.0,"id":7,"method":"ping"}"#, json!(7), invalid),
        (r#"{"jsonrpc":"2.0","id":7}"#, json!(7), invalid),
        (r#"{"jsonrpc":"2.0","id":7,"method":""}"#, json!(7), invalid),
        (r#"{"jsonrpc":"2.0","id":7,"method":5}"#, json!(7), invalid),
        (r#"{"jsonrpc":"2.0","method":""}"#, Value::Null, invalid),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, Value::Null, invalid),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, Value::Null, invalid),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, Value::Null, invalid),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":5}"#,
            json!(7),
            params,
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":[]}"#,
            json!(7),
            params,
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":null}"#,
            json!(7),
            params,
        ),
        ("[]", Value::Null, invalid),
        (r#"[{"jsonrpc":"2.0","id":7,"method":"ping"}]"#, Value::Null, invalid),
    ];
    for (line, id, (code, name)) in cases {
        check(line, id.clone(), *code, name).await;
    }
}

#[tokio::test]
async fn a_request_without_an_id_is_not_done_and_is_in_the_record() {
    let mut client = Client::of("2025-11-25").await;
    for method in ["notifications/initialized", "notifications/unheard_of", "tools/call"] {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": {"name": "echo"}});
        client.send(&message).await;
    }
    client.expect_silence().await;
    let fake = client.fake.clone();
    Client::until(|| !fake.refused.lock().unwrap().is_empty()).await;
    let refused = fake.refused.lock().unwrap();
    let told: Vec<_> = refused
        .iter()
        .map(|it| (it.code.name(), it.method.as_str(), &it.rpc_id))
        .collect();
    assert_eq!(told, [("INVALID_REQUEST", "tools/call", &None)]);
    assert_eq!(
        refused[0].message,
        "`tools/call` came without an `id`, and was not done"
    );
    assert_eq!(refused[0].params.as_ref().unwrap()["name"], "echo");
    assert_eq!(fake.calls.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[tokio::test]
async fn bytes_that_are_not_utf8_are_a_parse_error() {
    check(b"\xff\xfe", Value::Null, -32700, "PARSE_ERROR").await;
    let hidden = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"pi\xc3\x28ng\"}";
    check(hidden, Value::Null, -32700, "PARSE_ERROR").await;
}

#[tokio::test]
async fn depth_is_limited_at_the_edge() {
    let nested = |levels: usize| {
        let inner = levels - 2;
        let (open, close) = ("[".repeat(inner), "]".repeat(inner));
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"a":{open}{close}}}}}"#)
    };
    let mut client = Client::new();
    client.raw(nested(128) + "\n").await;
    assert_eq!(client.next().await, pong());
    check(nested(129), Value::Null, -32700, "PARSE_ERROR").await;
    check(nested(1_000_000), Value::Null, -32700, "PARSE_ERROR").await;
    check("[".repeat(5_000_000), Value::Null, -32700, "PARSE_ERROR").await;
}

#[tokio::test]
async fn a_line_may_be_as_long_as_the_limit_and_no_longer() {
    let mut client = Client::with(countersign_server::stdio::StdioOptions {
        line_bytes_max: 100,
        ..options()
    });
    let padded = |length: usize| format!("{PING}{}", " ".repeat(length - PING.len()));
    client.raw(padded(100) + "\n").await;
    assert_eq!(client.next().await, pong());
    for length in [101, 5_000, 200_000] {
        client.raw(padded(length) + "\n").await;
        let answer = client.next().await;
        assert_eq!(answer["id"], Value::Null, "{length}");
        assert_eq!(error_of(&answer), (-32600, "INVALID_REQUEST"), "{length}");
        client.expect_silence().await;
    }
}

#[tokio::test]
async fn a_line_of_200_megabytes_is_refused_early_and_not_kept() {
    let mut client = Client::of("2025-11-25").await;
    let piece = vec![b'a'; 1 << 20];
    let before = resident_bytes();
    let mut peak = before;
    for _ in 0..200 {
        client.raw(&piece).await;
        peak = peak.max(resident_bytes());
    }
    assert!(peak < before + (64 << 20), "grew from {before} to {peak}");
    // Answered before the line ends.
    let answer = client.next().await;
    assert_eq!(answer["id"], Value::Null);
    assert_eq!(error_of(&answer), (-32600, "INVALID_REQUEST"));
    client.raw(format!("tail\n{PING}\n")).await;
    assert_eq!(client.next().await, pong());
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[tokio::test]
async fn bytes_may_come_one_at_a_time() {
    let mut client = Client::new();
    for byte in format!("{PING}\n").bytes() {
        client.raw([byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(client.next().await, pong());
}

#[tokio::test]
async fn lines_may_come_in_halves_and_in_heaps() {
    let mut client = Client::new();
    let stream = format!("{PING}\n").repeat(1_000);
    for piece in stream.as_bytes().chunks(37) {
        client.raw(piece).await;
        tokio::task::yield_now().await;
    }
    for _ in 0..1_000 {
        assert_eq!(client.next().await, pong());
    }
}

#[tokio::test]
async fn carriage_returns_and_blank_lines_are_nothing() {
    let mut client = Client::new();
    client.raw(format!("\r\n\n   \n\t\n{PING}\r\n")).await;
    assert_eq!(client.next().await, pong());
    client.expect_silence().await;
}

#[tokio::test]
async fn a_last_line_without_a_newline_is_answered() {
    let mut client = Client::new();
    client.raw(PING).await;
    assert_eq!(client.end().await, [pong()]);
}

#[tokio::test]
async fn the_input_may_end_at_any_byte() {
    let session = [
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","_meta":{"progressToken":1}}}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo"}}"#,
    ]
    .join("\n");
    for end in 0..=session.len() {
        let mut client = Client::new();
        client.raw(&session[..end]).await;
        let fake = client.fake.clone();
        let answers = client.end().await;
        assert_eq!(fake.shutdowns.load(std::sync::atomic::Ordering::SeqCst), 1);
        let whole = session[..end]
            .split('\n')
            .filter(|line| line.ends_with('}') && line.starts_with('{'));
        let whole = whole.filter(|line| serde_json::from_str::<Value>(line).is_ok()).count();
        let cut = usize::from(answers.iter().any(|answer| answer["id"].is_null()));
        assert_eq!(answers.len(), whole + cut, "at byte {end}: {answers:?}");
    }
}

#[tokio::test]
async fn batches_belong_to_one_revision() {
    let mut client = Client::of("2025-03-26").await;
    client
        .send(&json!([
            {"jsonrpc": "2.0", "id": 1, "method": "ping"},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo"}},
            {"jsonrpc": "2.0", "id": null, "method": "ping"},
            5,
        ]))
        .await;
    let answer = client.next().await;
    let mut answers = answer.as_array().unwrap().clone();
    answers.sort_by_key(|answer| answer["id"].as_i64());
    assert_eq!(answers.len(), 4, "{answers:?}");
    assert_eq!(error_of(&answers[0]), (-32600, "INVALID_REQUEST"));
    assert_eq!(error_of(&answers[1]), (-32600, "INVALID_REQUEST"));
    assert_eq!(answers[2], pong());
    assert_eq!(answers[3]["result"]["isError"], false);

    client
        .send(&json!([{"jsonrpc": "2.0", "method": "notifications/initialized"}]))
        .await;
    client.expect_silence().await;
    for refused in [
        json!([]),
        json!(vec![json!({"jsonrpc": "2.0", "id": 3, "method": "ping"}); 101]),
    ] {
        client.send(&refused).await;
        let answer = client.next().await;
        assert_eq!(
            (&answer["id"], error_of(&answer)),
            (&Value::Null, (-32600, "INVALID_REQUEST"))
        );
    }
}

#[tokio::test]
async fn a_batch_is_answered_when_its_last_call_is_settled() {
    let mut client = Client::of("2025-03-26").await;
    client
        .send(&json!([
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "wait", "arguments": {"a": 1}}},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "wait", "arguments": {"a": 2}}},
            {"jsonrpc": "2.0", "id": 3, "method": "ping"},
        ]))
        .await;
    client.expect_silence().await;
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    client.send(&cancel).await;
    client.expect_silence().await;
    client.fake.gate.notify_one();
    let answers = client.next().await;
    let ids: Vec<_> = answers.as_array().unwrap().iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [&json!(3), &json!(2)]);
}
