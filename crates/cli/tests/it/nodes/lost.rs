//! A server whose database is away for long: it refuses what it cannot record, says that it may be tried again, does
//! nothing by halves, and does not grow.

use std::fs;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::field::{A, Field, attempt, message_of};
use crate::bench::Bench;
use crate::client::eventually;
use crate::outside::send;
use crate::web::legacy;

const CLIENTS: i64 = 24;
/// How long the database is away, and when the memory is first looked at: what a server sets up once is there by then.
const AWAY: Duration = Duration::from_secs(18);
const SETTLED: Duration = Duration::from_secs(7);
/// What may come and go with the calls that are under way.
const GROWTH_BYTES_MAX: u64 = 24 << 20;

fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib << 10
}

fn call(word: &str) -> Value {
    json!({"name": "execute_process", "arguments": {"file": "sh", "args": ["-c", format!("echo {word} >> acts")]}})
}

fn state(field: &Field, path: &str) -> u16 {
    send(&field.web(A).address, "GET", path, "", "").0
}

#[test]
fn a_server_whose_database_is_long_away_refuses_for_now_does_nothing_and_does_not_grow() {
    let Some(field) = Field::of(1, Bench::configured("sh", "")) else {
        return;
    };
    let sessions: Vec<String> = (0..CLIENTS).map(|_| field.session(A)).collect();
    for session in &sessions {
        let before = field
            .web(A)
            .post("/mcp", session, &legacy(1, "tools/call", call("before")))
            .1;
        assert_eq!(before["result"]["structuredContent"]["status"], "ok", "{before}");
    }
    field.cluster.stop();
    let began = Instant::now();
    // Whatever was said to each request, by its session and id.
    let said: Mutex<Vec<(usize, i64, Value)>> = Mutex::default();
    let (mut settled, mut last) = (0, 0);
    thread::scope(|scope| {
        for (client, session) in sessions.iter().enumerate() {
            let (field, said) = (&field, &said);
            scope.spawn(move || {
                let mut id = 1;
                while began.elapsed() < AWAY {
                    id += 1;
                    let message = legacy(id, "tools/call", call(&format!("away-{client}-{id}")));
                    let (_, body) = attempt(&field.web(A).address, session, &message).unwrap();
                    said.lock()
                        .unwrap()
                        .push((client, id, message_of(&body).unwrap_or_default()));
                }
            });
        }
        thread::sleep(SETTLED);
        settled = resident(field.web(A).pid());
        assert_eq!((state(&field, "/healthz"), state(&field, "/readyz")), (200, 503));
        thread::sleep(AWAY.saturating_sub(began.elapsed()));
        last = resident(field.web(A).pid());
    });
    let said = said.into_inner().unwrap();
    for (client, id, answer) in &said {
        let facts = &answer["result"]["structuredContent"];
        assert_eq!(
            (&facts["error_code"], &facts["status"], &facts["retryable"]),
            (&json!("AUDIT_UNAVAILABLE"), &json!("rejected"), &json!(true)),
            "{client} {id}: {answer}"
        );
    }
    println!("{} calls were refused; {settled} bytes, later {last}", said.len());
    assert!(said.len() > CLIENTS as usize, "the calls waited too long to be told");
    assert!(last < settled + GROWTH_BYTES_MAX, "it grew from {settled} to {last}");
    field.cluster.start_again();
    eventually("it is ready", || state(&field, "/readyz") == 200);
    // What was refused was not done, and is done once when it is tried again as it was told to.
    for (client, session) in sessions.iter().enumerate() {
        let word = format!("away-{client}-2");
        let again = legacy(2, "tools/call", call(&word));
        for _ in 0..2 {
            let done = field.web(A).post("/mcp", session, &again).1;
            assert_eq!(done["result"]["structuredContent"]["status"], "ok", "{done}");
        }
    }
    let acts = fs::read_to_string(field.bench.work().join("acts")).unwrap();
    let away: Vec<&str> = acts.lines().filter(|line| line.starts_with("away")).collect();
    assert_eq!(away.len(), sessions.len(), "{away:?}");
    assert!(away.iter().all(|word| word.ends_with("-2")), "{away:?}");
    assert_eq!(field.count("SELECT count(*) FROM open_commands"), 0);
    field.prove();
}
