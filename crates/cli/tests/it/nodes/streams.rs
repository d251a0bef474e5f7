//! A stream that is cut at one node goes on at another, also when the first is gone: what a client missed is in the
//! record, and nobody else gets it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::field::{A, B, C, Field, message_of};
use crate::bench::Bench;
use crate::client::{PATIENCE, eventually};
use crate::web::{Web, legacy};

fn slow(seconds: &str) -> Value {
    let line = format!("sleep {seconds}; echo done >> acts; echo said");
    json!({"name": "execute_process", "arguments": {"file": "sh", "args": ["-c", line]}})
}

fn send(web: &Web, method: &str, headers: &str, body: &str) -> BufReader<TcpStream> {
    let mut socket = TcpStream::connect(&web.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let accept = if method == "GET" { "" } else { "application/json, " };
    let head = format!(
        "{method} /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Accept: {accept}text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n",
        web.address,
        body.len()
    );
    socket.write_all((head + body).as_bytes()).unwrap();
    BufReader::new(socket)
}

/// The id of the next event.
fn event_id(stream: &mut BufReader<TcpStream>) -> String {
    let mut lines = stream.lines().map_while(Result::ok);
    let id = lines.find_map(|line| line.strip_prefix("id: ").map(str::to_owned));
    id.expect("an event with an id")
}

/// Begins a call whose answer is a stream, and cuts it; gives the id to go on from.
fn cut(web: &Web, session: &str, message: &Value) -> String {
    event_id(&mut send(web, "POST", session, &message.to_string()))
}

/// Status and body of what is said to a client that comes back.
fn resume(web: &Web, headers: &str, id: &str) -> (u16, String) {
    let mut answer = String::new();
    let headers = format!("{headers}Last-Event-ID: {id}\r\n");
    send(web, "GET", &headers, "").read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// The one answer in a stream that was resumed.
#[track_caller]
fn answer(resumed: (u16, String)) -> Value {
    assert_eq!(resumed.0, 200, "{}", resumed.1);
    message_of(&resumed.1).unwrap_or_else(|| panic!("no answer: {}", resumed.1))
}

fn acts(field: &Field) -> usize {
    let text = std::fs::read_to_string(field.bench.work().join("acts")).unwrap_or_default();
    text.lines().count()
}

#[test]
fn a_stream_that_is_cut_at_one_node_ends_with_its_answer_at_another() {
    let Some(field) = Field::of(3, Bench::configured("sh, sleep", "")) else {
        return;
    };
    let session = field.session(A);
    let id = cut(field.web(A), &session, &legacy(7, "tools/call", slow("2")));
    // While it runs at the first node, two come back at once.
    let told: Vec<Value> = thread::scope(|scope| {
        let asked: Vec<_> = [B, C]
            .map(|node| {
                scope.spawn({
                    let (field, session, id) = (&field, &session, &id);
                    move || answer(resume(field.web(node), session, id))
                })
            })
            .into_iter()
            .collect();
        asked.into_iter().map(|it| it.join().unwrap()).collect()
    });
    for told in &told {
        assert_eq!(told["id"], 7, "{told}");
        assert_eq!(told["result"]["structuredContent"]["stdout"], "said\n", "{told}");
        assert_eq!(told["result"]["_meta"]["countersign/duplicate"], Value::Null, "{told}");
    }
    // And after it ended, from the record, at each of them; the first node has it in memory.
    for node in [A, B, C] {
        let again = answer(resume(field.web(node), &session, &id));
        assert_eq!(
            again["result"]["structuredContent"],
            told[0]["result"]["structuredContent"]
        );
    }
    assert_eq!(acts(&field), 1);
    field.prove();
}

#[test]
fn who_has_read_the_answer_is_not_told_it_again_at_another_node() {
    let Some(field) = Field::of(2, Bench::configured("sh, sleep", "")) else {
        return;
    };
    let session = field.session(A);
    let message = legacy(7, "tools/call", slow("1.5")).to_string();
    let mut stream = send(field.web(A), "POST", &session, &message);
    let primer = event_id(&mut stream);
    let last = event_id(&mut stream);
    assert_ne!(primer, last);
    for node in [A, B] {
        let (status, body) = resume(field.web(node), &session, &last);
        assert_eq!((status, message_of(&body)), (200, None), "{body}");
    }
    // The stream beside all requests carries what may be lost, and goes on wherever its client comes.
    let beside = event_id(&mut send(field.web(A), "GET", &session, ""));
    let headers = format!("{session}Last-Event-ID: {beside}\r\n");
    let mut head = String::new();
    send(field.web(B), "GET", &headers, "").read_line(&mut head).unwrap();
    assert!(head.contains(" 200 "), "{head}");
}

#[test]
fn a_stream_whose_node_died_ends_with_what_the_record_says_of_its_call() {
    let Some(mut field) = Field::of(2, Bench::configured("sh, sleep", "")) else {
        return;
    };
    let session = field.session(A);
    let ended = cut(field.web(A), &session, &legacy(1, "tools/call", slow("1.5")));
    eventually("the first call has ended", || acts(&field) == 1);
    let running = cut(field.web(A), &session, &legacy(2, "tools/call", slow("50")));
    field.kill(A);
    let told = answer(resume(field.web(B), &session, &ended));
    assert_eq!(
        (&told["id"], &told["result"]["structuredContent"]["status"]),
        (&json!(1), &json!("ok")),
        "{told}"
    );
    field.age(A);
    let told = answer(resume(field.web(B), &session, &running));
    assert_eq!(told["result"]["structuredContent"]["error_code"], "ABANDONED", "{told}");
    // The node that comes back has forgotten its streams, and finds them in the record as well.
    field.serve(A);
    let told = answer(resume(field.web(A), &session, &ended));
    assert_eq!(told["result"]["structuredContent"]["stdout"], "said\n", "{told}");
    assert_eq!(acts(&field), 1);
    field.prove();
}

#[test]
fn a_stream_that_waits_for_a_person_goes_on_at_another_node() {
    let Some(field) = Field::of(3, Bench::new()) else {
        return;
    };
    let session = field.session(A);
    let call = json!({"name": "execute_process", "arguments": {"file": "touch", "args": ["made"]}});
    let mut stream = send(
        field.web(A),
        "POST",
        &session,
        &legacy(3, "tools/call", call).to_string(),
    );
    let id = event_id(&mut stream);
    let question = field.question();
    let told = thread::scope(|scope| {
        let (field, session, id) = (&field, &session, &id);
        let resumed = scope.spawn(move || answer(resume(field.web(B), session, id)));
        thread::sleep(Duration::from_millis(500));
        field.told(C, &["approve", &question, "--reason", "it is fine"]);
        resumed.join().unwrap()
    });
    assert_eq!(told["result"]["structuredContent"]["status"], "ok", "{told}");
    assert!(field.bench.work().join("made").exists());
    field.prove();
}

#[test]
fn a_stream_is_taken_up_by_its_own_session_and_credential_only() {
    let Some(field) = Field::of(2, Bench::configured("sh, sleep", "")) else {
        return;
    };
    let (ana, ben) = (field.token("agent", "ana"), field.token("agent", "ben"));
    let hello =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let session = field.web(A).session_with(&ana, &hello);
    let another = field.web(A).session_with(&ana, &hello);
    let id = cut(
        field.web(A),
        &format!("{ana}{session}"),
        &legacy(7, "tools/call", slow("1.5")),
    );
    let unknown = id.rsplit_once('-').unwrap().0.to_owned();
    for (headers, id, status) in [
        (format!("{ben}{session}"), &id, 404),
        (session.clone(), &id, 404),
        (format!("{ana}{another}"), &id, 400),
        (format!("{ana}{session}"), &unknown, 400),
        (format!("{ana}{session}"), &format!("{unknown}-0123456789abcdef"), 400),
        (format!("{ana}{session}"), &format!("{id}-x"), 400),
    ] {
        assert_eq!(resume(field.web(B), &headers, id).0, status, "{headers}{id}");
    }
    let told = answer(resume(field.web(B), &format!("{ana}{session}"), &id));
    assert_eq!(told["result"]["structuredContent"]["status"], "ok", "{told}");
}
