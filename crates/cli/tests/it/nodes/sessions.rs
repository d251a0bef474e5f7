//! A session belongs to no node: whichever is asked answers, and what is asked twice is done once.

use std::fs;
use std::thread;

use serde_json::{Value, json};

use super::field::{A, B, C, Field, attempt, message_of};
use crate::bench::{Bench, is_root};
use crate::client::eventually;
use crate::jobs::with_agent;
use crate::web::{Web, legacy};

fn field(nodes: usize) -> Option<Field> {
    Field::of(nodes, Bench::configured("sh, sleep, 'true'", ""))
}

/// A command that leaves a line behind each time it runs.
fn mark(word: &str, seconds: &str) -> Value {
    json!({"file": "sh", "args": ["-c", format!("sleep {seconds}; echo {word} >> acts")]})
}

fn acts(field: &Field) -> Vec<String> {
    let text = fs::read_to_string(field.bench.work().join("acts")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn any_node_answers_any_request_of_a_session() {
    let Some(field) = field(3) else { return };
    let session = field.session(A);
    let first = field.call(A, &session, 1, "execute_process", mark("first", "0"));
    assert_eq!(first["status"], "ok", "{first}");
    // The same request at other nodes is answered from the record, not done again.
    for node in [B, C] {
        let again = field.call(node, &session, 1, "execute_process", mark("first", "0"));
        assert_eq!(again, first);
    }
    let second = field.call(B, &session, 2, "execute_process", mark("second", "0"));
    assert_eq!(second["status"], "ok", "{second}");
    // What ended at another node after this one had the session is known here all the same.
    assert_eq!(
        field.call(C, &session, 2, "execute_process", mark("second", "0")),
        second
    );
    let id = json!({"request_id": second["request_id"]});
    assert_eq!(field.call(A, &session, 3, "command_status", id), second);
    assert_eq!(acts(&field), ["first", "second"]);
    let mut ended = field.web(C).stream("DELETE", "/mcp", &session, &Value::Null);
    drop(ended.head());
    for node in [A, B, C] {
        eventually("the session is over everywhere", || {
            let ping = legacy(9, "ping", json!({}));
            attempt(&field.web(node).address, &session, &ping).unwrap().0 == 404
        });
    }
    field.prove();
}

#[test]
fn a_request_repeated_at_another_node_while_it_runs_acts_once() {
    let Some(field) = field(3) else { return };
    let session = field.session(A);
    let answers: Vec<Value> = thread::scope(|scope| {
        let asked: Vec<_> = [A, B, C, A, B, C]
            .into_iter()
            .map(|node| {
                let (field, session) = (&field, &session);
                scope.spawn(move || field.call(node, session, 5, "execute_process", mark("once", "1")))
            })
            .collect();
        asked.into_iter().map(|it| it.join().unwrap()).collect()
    });
    for answer in &answers {
        assert_eq!(answer["status"], "ok", "{answer}");
        assert_eq!(answer["request_id"], answers[0]["request_id"]);
    }
    assert_eq!(acts(&field), ["once"]);
    // A client that numbers its requests anew gets every one of them done.
    let other = field.call(B, &session, 5, "execute_process", mark("other", "0"));
    assert_eq!(other["status"], "ok", "{other}");
    let twice = field.call(B, &session, 5, "execute_process", mark("other", "0"));
    assert_eq!(twice["status"], "ok", "{twice}");
    assert_eq!(acts(&field), ["once", "other", "other"]);
    field.prove();
}

#[test]
fn a_job_asked_for_at_several_nodes_by_one_request_is_started_once() {
    let Some(field) = Field::of(3, with_agent(Bench::new(), "")) else {
        return;
    };
    let session = field.session(A);
    let ask = |node| {
        let task = json!({"agent": "mine", "prompt": "greet"});
        field.call(node, &session, 5, "start-task", task)
    };
    let answers: Vec<Value> = thread::scope(|scope| {
        let asked: Vec<_> = [A, B, C, A, B, C]
            .map(|node| scope.spawn(move || ask(node)))
            .into_iter()
            .collect();
        asked.into_iter().map(|it| it.join().unwrap()).collect()
    });
    for answer in &answers {
        assert_eq!(answer["status"], "accepted", "{answer}");
        assert_eq!(answer["jobId"], answers[0]["jobId"]);
    }
    for node in [A, B, C] {
        assert_eq!(ask(node), answers[0], "after its end");
    }
    assert_eq!(field.count("SELECT count(*) FROM jobs"), 1);
    field.prove();
}

#[test]
fn a_request_repeated_at_another_server_of_the_same_file_acts_once() {
    let bench = Bench::configured("sh, sleep", "");
    let servers = [Web::serve(&bench), Web::serve(&bench)];
    let session = servers[0].session(json!({}));
    let call = json!({"name": "execute_process", "arguments": mark("once", "1")});
    let message = legacy(5, "tools/call", call);
    let answers: Vec<Value> = thread::scope(|scope| {
        let asked: Vec<_> = servers
            .iter()
            .map(|server| scope.spawn(|| server.post("/mcp", &session, &message).1))
            .collect();
        asked.into_iter().map(|it| it.join().unwrap()).collect()
    });
    for answer in &answers {
        assert_eq!(answer["result"]["structuredContent"]["status"], "ok", "{answer}");
    }
    assert_eq!(fs::read_to_string(bench.work().join("acts")).unwrap(), "once\n");
    servers.into_iter().for_each(Web::stop);
    bench.prove();
}

#[test]
fn a_call_that_waits_at_one_node_is_let_go_by_a_person_at_another() {
    let Some(field) = Field::of(3, Bench::new()) else {
        return;
    };
    let session = field.session(A);
    for (id, node) in [(1, B), (2, C)] {
        let name = format!("made-{id}");
        let answer = thread::scope(|scope| {
            let call = json!({"file": "touch", "args": [name]});
            let (field, session) = (&field, &session);
            let asked = scope.spawn(move || field.call(A, session, id, "execute_process", call));
            let question = field.question();
            let decided = field.run(node, &["approve", &question, "--reason", "it is fine"]);
            assert!(decided.status.success(), "{decided:?}");
            asked.join().unwrap()
        });
        assert_eq!(answer["status"], "ok", "{answer}");
        assert!(field.bench.work().join(&name).exists());
    }
    if !is_root() {
        return;
    }
    // Its node dies while it waits; the call, repeated elsewhere, is let go by the same question.
    let mut field = field;
    let (address, message) = (
        field.web(A).address.clone(),
        legacy(
            3,
            "tools/call",
            json!({"name": "execute_process", "arguments": {"file": "touch", "args": ["made-3"]}}),
        ),
    );
    let (headers, asked) = (session.clone(), message.clone());
    let cut = thread::spawn(move || attempt(&address, &headers, &asked));
    let question = field.question();
    field.kill(A);
    assert!(!matches!(cut.join().unwrap(), Ok((200, body)) if message_of(&body).is_some()));
    field.told(C, &["approve", &question, "--reason", "it is fine"]);
    let (_, body) = attempt(&field.web(B).address, &session, &message).unwrap();
    let answer = message_of(&body).unwrap();
    assert_eq!(answer["result"]["structuredContent"]["status"], "ok", "{answer}");
    assert!(field.bench.work().join("made-3").exists());
    assert_eq!(
        field.count("SELECT count(*) FROM approvals"),
        3,
        "the same question was asked twice"
    );
    field.prove();
}
