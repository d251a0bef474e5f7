//! A secret is in the two systems it was meant for and nowhere else: it is looked for, in all its forms, in every
//! place that something of it could reach.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use countersign_doubles::disguise;
use countersign_doubles::github::faults::Fault;
use countersign_doubles::http::Response;
use serde_json::{Value, json};

use super::world::{TOOL, World, wanted, with};
use crate::bench::Bench;
use crate::outside::until;
use crate::rest::office::{Office, Who};

const AGENT: Who<'_> = Who::Role("agent");
const APPROVER: Who<'_> = Who::Role("approver");
/// Every form of it differs from the others.
const VALUE: &str = "pl3ase \"tell\"/nobody\\at+all?>~é";

/// Takes spans for as long as the test goes on.
struct Collector {
    endpoint: String,
    taken: Arc<Mutex<Vec<u8>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let taken = Arc::new(Mutex::new(Vec::new()));
        let kept = taken.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let kept = kept.clone();
                std::thread::spawn(move || take(connection, &kept));
            }
        });
        Self { endpoint, taken }
    }

    fn taken(&self) -> Vec<u8> {
        self.taken.lock().unwrap().clone()
    }
}

/// Keeps what comes; each request is answered when nothing more of it comes.
fn take(mut connection: TcpStream, kept: &Mutex<Vec<u8>>) {
    connection.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut buffer = [0; 4096];
    let mut is_asked = false;
    loop {
        match connection.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                kept.lock().unwrap().extend_from_slice(&buffer[..count]);
                is_asked = true;
            }
            Err(_) if is_asked => {
                is_asked = false;
                let _ = connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            }
            Err(_) => {}
        }
    }
}

fn whole(mut connection: TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    // A server that is killed ends its answers so.
    let _ = connection.read_to_end(&mut said);
    said
}

/// Keeps a stream until the server goes.
fn follow(office: &Office, who: Who<'_>, path: &str, headers: &str) -> JoinHandle<Vec<u8>> {
    let stream = office.send(
        who,
        "GET",
        path,
        &format!("Accept: text/event-stream\r\n{headers}"),
        None,
    );
    stream.set_read_timeout(None).unwrap();
    std::thread::spawn(move || whole(stream))
}

fn mcp(office: &Office, session: &str, message: &Value) -> String {
    let headers = format!("Accept: application/json, text/event-stream\r\n{session}");
    let said = whole(office.send(AGENT, "POST", "/mcp", &headers, Some(&message.to_string())));
    String::from_utf8_lossy(&said).into_owned()
}

/// The header of a new session.
pub(super) fn session(office: &Office) -> String {
    let hello =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let said = mcp(
        office,
        "",
        &json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
    );
    let line = said
        .lines()
        .find(|line| line.to_lowercase().starts_with("mcp-session-id: "));
    format!("{}\r\n", line.unwrap_or_else(|| panic!("no session: {said}")).trim())
}

fn call(office: &Office, session: &str, arguments: &Value) -> String {
    let params = json!({"name": TOOL, "arguments": arguments});
    mcp(
        office,
        session,
        &json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}),
    )
}

/// Makes a call and has it decided; the answer.
fn decided(office: &Office, bench: &Bench, session: &str, arguments: &Value, decision: &str) -> String {
    std::thread::scope(|scope| {
        let called = scope.spawn(|| call(office, session, arguments));
        let (question, _) = bench.question();
        let body = json!({"decision": decision, "reason": "as the test wants it"});
        office
            .post(APPROVER, &format!("/approvals/{question}/decision"), body)
            .ok();
        called.join().unwrap()
    })
}

/// The cookie of somebody who logged in to the console.
fn cookie(office: &Office, role: &str) -> String {
    let form = format!("token={}", office.token(role));
    let address = office.address();
    let mut connection = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /login HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\nConnection: close\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
        form.len()
    );
    connection.write_all(head.as_bytes()).unwrap();
    let said = String::from_utf8(whole(connection)).unwrap();
    let set = said.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("set-cookie").then_some(value)
    });
    let set = set.unwrap_or_else(|| panic!("nobody is let in: {said}"));
    format!("Cookie: {}\r\n", set.split(';').next().unwrap())
}

/// Everything that a role can read over REST and in the console: where it was, and what stood there.
fn readable(office: &Office, bench: &Bench, role: &str) -> Vec<(String, Vec<u8>)> {
    let column = |query: &str| -> BTreeSet<String> {
        let database = bench.database();
        let mut statement = database.prepare(query).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let questions = column("SELECT approval_id FROM approvals");
    let calls = column("SELECT DISTINCT correlation_id FROM flow_events");
    assert!(questions.len() >= 4 && calls.len() >= 4, "{questions:?} {calls:?}");
    let mut pages: Vec<String> = [
        "/",
        "/queue",
        "/activity",
        "/activity/news",
        "/jobs",
        "/runs",
        "/record",
        "/sessions",
        "/policy",
        "/numbers",
        "/metrics",
        "/readyz",
    ]
    .map(str::to_owned)
    .to_vec();
    for (template, operations) in office.document()["paths"].as_object().unwrap() {
        let streams = operations["get"]["responses"]["200"]["content"]["text/event-stream"].is_object();
        if operations["get"].is_object() && !streams && !template.contains('{') {
            pages.push(template.clone());
        }
    }
    for id in &questions {
        pages.push(format!("/api/v1/approvals/{id}"));
        pages.push(format!("/approvals/{id}"));
        pages.push(format!("/approvals/{id}/card"));
        pages.push(format!("/approvals/{id}/standing"));
    }
    pages.extend(calls.iter().map(|correlation| format!("/calls/{correlation}")));
    let cookie = cookie(office, role);
    let read = |page: String| {
        // The console takes a login, and REST a token.
        let (who, headers) = match page.starts_with("/api/") {
            true => (Who::Role(role), ""),
            false => (Who::Nobody, cookie.as_str()),
        };
        let said = whole(office.send(who, "GET", &page, headers, None));
        (format!("{page} for a {role}"), said)
    };
    pages.into_iter().map(read).collect()
}

/// The files below a folder, and what is in them.
fn files(folder: &Path, into: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, into);
        } else if let Ok(bytes) = fs::read(&path) {
            into.push((path.display().to_string(), bytes));
        }
    }
}

/// What the server left on the disk.
fn left(bench: &Bench) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for folder in ["state", "home", "tmp", "cache", "config"] {
        files(&bench.path(folder), &mut found);
    }
    assert!(found.iter().any(|(path, _)| path.ends_with("record.db")));
    found
}

#[track_caller]
fn is_in_none(places: &[(String, Vec<u8>)]) {
    for (place, said) in places {
        let found = disguise::found(VALUE, said);
        let said = String::from_utf8_lossy(said);
        let lines: Vec<&str> = said
            .lines()
            .filter(|line| found.iter().any(|form| line.contains(form)))
            .collect();
        assert!(found.is_empty(), "{place} holds {found:?}: {lines:#?}");
    }
}

#[test]
fn a_value_is_found_nowhere_in_no_form_whatever_happens_to_its_call() {
    let collector = Collector::start();
    let world = World::with(&format!("telemetry: {{otlp_endpoint: '{}'}}\n", collector.endpoint));
    let world = World {
        bench: world
            .bench
            .env("COUNTERSIGN_LOG", "trace")
            .env("RUST_BACKTRACE", "full"),
        ..world
    };
    let bench = &world.bench;
    let echo = disguise::forms(VALUE).join(" and ");
    let arguments = with(wanted("provided"), "secret_value", VALUE);
    let mut places: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |place: &str, said: String| places.push((place.to_owned(), said.into_bytes()));

    let office = Office::open(bench);
    let agent = session(&office);
    let streams = [
        follow(&office, Who::Role("viewer"), "/api/v1/events", ""),
        follow(&office, Who::Nobody, "/live", &cookie(&office, "viewer")),
    ];
    let refused = call(&office, &agent, &with(arguments.clone(), "repository", VALUE));
    assert!(refused.contains("INVALID_ARGUMENTS"), "{refused}");
    add("the answer to wrong arguments", refused);
    // A no counts for the same call again.
    let another = with(arguments.clone(), "kubernetes_secret_key", "another");
    let denied = decided(&office, bench, &agent, &another, "deny");
    assert!(denied.contains("APPROVAL_DENIED"), "{denied}");
    add("the answer after a no", denied);
    // Counterparts that repeat what they were sent, in every form.
    world.github.next("PUT", "/DB_PASSWORD", Fault::status(502, &echo));
    let failed = decided(&office, bench, &agent, &arguments, "approve");
    assert!(
        failed.contains("UPSTREAM_ERROR") && failed.contains("[redacted] and [redacted]"),
        "{failed}"
    );
    add("the answer when GitHub fails", failed);
    world.kubernetes.next("PATCH", "/database", Fault::status(500, &echo));
    let failed = decided(&office, bench, &agent, &arguments, "approve");
    assert!(
        failed.contains("UPSTREAM_ERROR") && failed.contains("[redacted] and [redacted]"),
        "{failed}"
    );
    add("the answer when Kubernetes fails", failed);
    let garbled = Fault::Answer(Response::new(200, json!(echo)));
    world.kubernetes.next("PATCH", "/database", garbled);
    let failed = decided(&office, bench, &agent, &arguments, "approve");
    assert!(failed.contains("UPSTREAM_ERROR"), "{failed}");
    add("the answer when nobody understands Kubernetes", failed);
    // The last one is cut off between the two systems.
    world
        .kubernetes
        .next("PATCH", "/database", Fault::Slow(Duration::from_secs(120)));
    let before = world.kubernetes.asked("PATCH");
    let said = std::thread::scope(|scope| {
        let called = scope.spawn(|| call(&office, &agent, &arguments));
        let (question, _) = bench.question();
        let yes = json!({"decision": "approve"});
        office
            .post(APPROVER, &format!("/approvals/{question}/decision"), yes)
            .ok();
        until("Kubernetes is not asked", || world.kubernetes.asked("PATCH") > before);
        let pid = office.pid().to_string();
        assert!(
            std::process::Command::new("kill")
                .args(["-KILL", &pid])
                .status()
                .unwrap()
                .success()
        );
        called.join().unwrap()
    });
    add("the answer that was cut off", said);
    let (tokens, logs) = (office.tokens(), office.kill());
    assert!(
        logs.lines().filter(|line| line.contains(" TRACE ")).count() > 50,
        "{logs}"
    );
    add("the log", logs);
    for stream in streams {
        add(
            "a stream of events",
            String::from_utf8_lossy(&stream.join().unwrap()).into_owned(),
        );
    }
    is_in_none(&left(bench));

    let office = Office::open_again(bench, tokens);
    until("it is not put right", || world.at_kubernetes().is_some());
    assert_eq!(world.at_github().as_deref(), Some(VALUE.as_bytes()));
    assert_eq!(world.at_kubernetes().as_deref(), Some(VALUE.as_bytes()));
    let mut dry = arguments.clone();
    dry["dry_run"] = json!(true);
    let dry = call(&office, &session(&office), &dry);
    assert!(dry.contains("dry_run"), "{dry}");
    places.push(("the answer of a dry run".to_owned(), dry.into_bytes()));
    for role in ["viewer", "approver", "operator"] {
        let read = readable(&office, bench, role);
        let told = read
            .iter()
            .filter(|(_, said)| String::from_utf8_lossy(said).contains(TOOL));
        assert!(told.count() > 10, "the pages do not tell of it");
        places.extend(read);
    }
    is_in_none(&left(bench));
    let logs = office.close();
    places.push(("the log of the second server".to_owned(), logs.into_bytes()));
    for arguments in [
        ["audit", "query", "--kind", "event", "--json"].as_slice(),
        &["audit", "query", "--kind", "invocation", "--json"],
        &["audit", "query", "--kind", "envelope", "--json"],
        &["audit", "query", "--kind", "command", "--json"],
        &["audit", "export"],
        &["approvals", "list", "--json"],
        &["metrics", "--json"],
        &["policy", "show", "--effective", "--json"],
    ] {
        let output = bench.command().args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        places.push((arguments.join(" "), [output.stdout, output.stderr].concat()));
    }
    let spans = collector.taken();
    assert!(String::from_utf8_lossy(&spans).contains(TOOL), "no spans came");
    places.push(("the spans".to_owned(), spans));
    is_in_none(&places);
    is_in_none(&left(bench));
    let sealed = "SELECT count(*) FROM secret_syncs WHERE sealed_value IS NOT NULL";
    assert_eq!(bench.count(sealed), 0);
    bench.prove();
}
