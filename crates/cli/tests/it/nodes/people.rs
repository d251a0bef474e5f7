//! People come to any node: they see what happens at the others as it happens, and what they decide counts there.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use super::field::{A, B, C, Field};
use crate::bench::Bench;
use crate::client::{PATIENCE, eventually};
use crate::outside::send;
use crate::web::Web;

/// Follows the ends of commands from a place on.
fn follow(web: &Web, headers: &str) -> BufReader<TcpStream> {
    let mut socket = TcpStream::connect(&web.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "GET /api/v1/events?type=command.completed HTTP/1.1\r\nHost: {}\r\n{headers}\r\n",
        web.address
    );
    socket.write_all(head.as_bytes()).unwrap();
    let mut stream = BufReader::new(socket);
    let mut line = String::new();
    // Whoever has the first word is heard from then on.
    while !line.contains("retry: ") {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream ended");
    }
    stream
}

/// The next so many ends of commands: the place of each, and the word that it was called with.
fn ends(stream: &mut BufReader<TcpStream>, count: usize) -> Vec<(u64, String)> {
    let (mut told, mut place) = (Vec::new(), 0);
    while told.len() < count {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream ended: {told:?}");
        if let Some(id) = line.trim_end().strip_prefix("id: ") {
            place = id.parse().unwrap();
        }
        if let Some(event) = line.strip_prefix("data: ").map(serde_json::from_str::<Value>) {
            let event = event.unwrap();
            let word = event["payload"]["arguments"][0].as_str().unwrap();
            told.push((place, word.to_owned()));
        }
    }
    told
}

#[test]
fn events_of_all_nodes_are_told_in_order_at_any_and_the_place_counts_at_the_next() {
    let Some(mut field) = Field::of(3, Bench::configured("echo", "")) else {
        return;
    };
    let viewer = field.token("viewer", "eve");
    let session = field.session(A);
    let mut id = 0;
    let mut say = |field: &Field, node: usize| {
        id += 1;
        let call = json!({"file": "echo", "args": [format!("w-{id}")]});
        assert_eq!(field.call(node, &session, id, "execute_process", call)["status"], "ok");
    };
    let words = |range: std::ops::RangeInclusive<i64>| range.map(|word| format!("w-{word}")).collect::<Vec<_>>();
    let mut stream = follow(field.web(B), &viewer);
    for node in [A, C, A, B, C, A] {
        say(&field, node);
    }
    let seen = ends(&mut stream, 6);
    assert_eq!(
        seen.iter().map(|(_, word)| word.clone()).collect::<Vec<_>>(),
        words(1..=6)
    );
    assert!(seen.is_sorted_by(|one, next| one.0 < next.0), "{seen:?}");
    // The node dies; the others go on meanwhile, and its place counts there.
    field.kill(B);
    say(&field, C);
    say(&field, A);
    let headers = format!("{viewer}Last-Event-ID: {}\r\n", seen[3].0);
    for node in [A, C] {
        let told = ends(&mut follow(field.web(node), &headers), 4);
        assert_eq!(
            told.iter().map(|(_, word)| word.clone()).collect::<Vec<_>>(),
            words(5..=8)
        );
        assert_eq!(told[..2], seen[4..]);
    }
    field.prove();
}

/// A call that waits at a node for what a person says.
fn asked<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    field: &'scope Field,
    session: &'scope str,
    id: i64,
) -> thread::ScopedJoinHandle<'scope, Value> {
    let call = json!({"file": "touch", "args": [format!("made-{id}")]});
    scope.spawn(move || field.call(A, session, id, "execute_process", call))
}

#[test]
fn the_console_of_one_node_decides_what_waits_at_another() {
    let Some(field) = Field::of(3, Bench::new()) else {
        return;
    };
    let operator = field.token("operator", "ada");
    let token = operator.trim_end().rsplit(' ').next().unwrap();
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let browser = |node: usize, more: &str| format!("Origin: http://{}\r\n{more}", field.web(node).address);
    let cookie = {
        let mut socket = TcpStream::connect(&field.web(B).address).unwrap();
        let body = format!("token={token}");
        let head = format!(
            "POST /login HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{form}{}Content-Length: {}\r\n\r\n{body}",
            field.web(B).address,
            browser(B, ""),
            body.len()
        );
        socket.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let set = answer.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        let cookie = set.unwrap_or_else(|| panic!("no login: {answer}")).split(';').next();
        format!("Cookie: {}\r\n", cookie.unwrap())
    };
    let session = field.session(A);
    for (id, node, word) in [(1, B, "approve"), (2, C, "deny")] {
        let told = thread::scope(|scope| {
            let call = asked(scope, &field, &session, id);
            let question = field.question();
            // The page of a node that did not ask shows it, to a browser that came in at another.
            eventually("the page shows it", || {
                let headers = browser(node, &cookie);
                let (status, page) = send(&field.web(node).address, "GET", "/", &headers, "");
                assert_eq!(status, 200, "{page}");
                page.contains(&question)
            });
            let path = format!("/approvals/{question}/decision");
            let body = format!("decision={word}&reason=so+it+is");
            let address = &field.web(node).address;
            let mut socket = TcpStream::connect(address).unwrap();
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{form}{}Content-Length: {}\r\n\r\n{body}",
                browser(node, &cookie),
                body.len()
            );
            socket.write_all(head.as_bytes()).unwrap();
            let mut answer = String::new();
            socket.read_to_string(&mut answer).unwrap();
            assert!(
                answer.starts_with("HTTP/1.1 303") || answer.starts_with("HTTP/1.1 200"),
                "{answer}"
            );
            call.join().unwrap()
        });
        let expected = if word == "approve" { "ok" } else { "rejected" };
        assert_eq!(told["status"], expected, "{told}");
        assert_eq!(
            field.bench.work().join(format!("made-{id}")).exists(),
            word == "approve"
        );
    }
    field.prove();
}

#[test]
fn approvals_watch_at_one_node_shows_and_decides_what_waits_at_another() {
    let Some(field) = Field::of(2, Bench::new()) else {
        return;
    };
    let session = field.session(A);
    let watch = field.command(B);
    let quoted = |word: &std::ffi::OsStr| format!("'{}'", word.to_str().unwrap().replace('\'', r"'\''"));
    let words = std::iter::once(watch.get_program()).chain(watch.get_args());
    let line = words.map(quoted).collect::<Vec<_>>().join(" ") + " approvals watch";
    // On a terminal of its own.
    let mut script = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env_clear()
        .envs(watch.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("SHELL", "/bin/sh")
        .env("PATH", "/usr/bin:/bin")
        .env("TERM", "xterm")
        .current_dir(field.bench.work())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = script.stdin.take().unwrap();
    let mut screen = script.stdout.take().unwrap();
    let shown = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let kept = std::sync::Arc::clone(&shown);
    let reading = thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = screen.read(&mut bytes) {
            *kept.lock().unwrap() += &String::from_utf8_lossy(&bytes[..count]);
        }
    });
    let sees = |what: &str| shown.lock().unwrap().contains(what);
    eventually("it watches", || sees("nothing") || sees("wait"));
    let told = thread::scope(|scope| {
        let call = asked(scope, &field, &session, 1);
        eventually("it shows the question", || sees("touch made-1"));
        keys.write_all(b"ka").and_then(|()| keys.flush()).unwrap();
        call.join().unwrap()
    });
    assert_eq!(told["status"], "ok", "{told}");
    let decided = "SELECT count(*) FROM flow_events WHERE event_type = 'approval.approved'";
    assert_eq!(field.count(decided), 1);
    keys.write_all(b"q").and_then(|()| keys.flush()).unwrap();
    assert!(script.wait().unwrap().success());
    reading.join().unwrap();
    field.prove();
}
