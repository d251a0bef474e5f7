//! Three nodes and their database under load while they are killed, frozen and cut off, from a seed that is printed:
//! `COUNTERSIGN_SEED` repeats one round, `COUNTERSIGN_ROUNDS` makes many.
//!
//! Clients are as stubborn as good clients are: a request that was not answered is sent again, under its id, to
//! whichever node is there, until something is said that is no *later*.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::field::{Field, attempt_at, message_of};
use crate::bench::Bench;
use crate::client::eventually;
use crate::crash::Dice;
use crate::jobs::with_agent;
use crate::web::legacy;

const NODES: usize = 3;
const CLIENTS: u64 = 4;
/// What is done to them while clients work.
const FAULTS: u64 = 6;
/// Longer than any answer takes that is still to come.
const ENOUGH: Duration = Duration::from_secs(60);
/// How long a client waits for a node before it asks another.
const CLIENT_PATIENCE: Duration = Duration::from_secs(4);

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn whatever_happens_to_nodes_and_database_each_act_is_done_once_at_most_and_recorded_once() {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let first = number("COUNTERSIGN_SEED").unwrap_or(clock.as_millis() as u64);
    for round in 0..number("COUNTERSIGN_ROUNDS").unwrap_or(1) {
        let seed = first + round;
        println!("COUNTERSIGN_SEED={seed}");
        let Some(field) = Field::of(NODES, bench()) else { return };
        play(field, seed);
    }
}

/// Processes run at once, lines ask.
fn bench() -> Bench {
    let policy = "workspace_root: .\napproval_policy: {mode: never}\ntools: {execute_command: {approval: required}}\n\
        command_policy: {allowlist: [sh, sleep, mkdir]}\njobs: {maxProcesses: 3}\n";
    with_agent(Bench::new(), policy)
}

/// Where the nodes are at this moment.
type Addresses = Mutex<Vec<Option<String>>>;

/// What a client was told of one thing that it wanted done.
#[derive(Debug)]
struct Told {
    request_id: String,
    status: String,
    code: String,
    exit: Option<i64>,
}

struct Client<'f> {
    dice: Dice,
    addresses: &'f Addresses,
    session: String,
    commands: BTreeMap<String, Told>,
    directories: BTreeMap<String, Told>,
    jobs: Vec<String>,
}

fn play(mut field: Field, seed: u64) {
    let addresses: Addresses = Mutex::new(Vec::new());
    let operator = field.token("operator", "o");
    look_up(&field, &addresses);
    let is_over = AtomicBool::new(false);
    let sessions: Vec<String> = (0..CLIENTS)
        .map(|client| field.session(client as usize % NODES))
        .collect();
    let clients: Vec<Client<'_>> = thread::scope(|scope| {
        let (addresses, is_over) = (&addresses, &is_over);
        let working: Vec<_> = sessions
            .into_iter()
            .zip(1..)
            .map(|(session, number)| {
                scope.spawn(move || {
                    let client = Client {
                        dice: dice(seed, number),
                        addresses,
                        session,
                        commands: BTreeMap::new(),
                        directories: BTreeMap::new(),
                        jobs: Vec::new(),
                    };
                    client.work(number, is_over)
                })
            })
            .collect();
        let decides = AtomicBool::new(true);
        let cluster = Mutex::new(&mut field);
        thread::scope(|inner| {
            let (decides, cluster) = (&decides, &cluster);
            inner.spawn(move || decide(cluster, addresses, &operator, decides));
            let mut dice = dice(seed, 0);
            for _ in 0..FAULTS {
                thread::sleep(Duration::from_millis(300 + dice.roll(900)));
                harm(cluster, addresses, &mut dice);
            }
            is_over.store(true, Ordering::Relaxed);
            let worked: Vec<_> = working.into_iter().map(|client| client.join()).collect();
            decides.store(false, Ordering::Relaxed);
            worked.into_iter().map(|client| client.unwrap()).collect()
        })
    });
    settle(&field, &clients);
}

fn dice(seed: u64, salt: u64) -> Dice {
    let mut dice = Dice((seed ^ salt << 48).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    dice.roll(2);
    dice
}

fn look_up(field: &Field, addresses: &Addresses) {
    *addresses.lock().unwrap() = (0..NODES).map(|node| Some(field.web(node).address.clone())).collect();
}

/// One thing that goes wrong, from its beginning to its end.
fn harm(field: &Mutex<&mut Field>, addresses: &Addresses, dice: &mut Dice) {
    let node = dice.roll(NODES as u64) as usize;
    let pause = Duration::from_millis(dice.roll(1_200));
    match dice.roll(6) {
        0 | 1 => {
            println!("  node {node} is killed, and back after {pause:?}");
            addresses.lock().unwrap()[node] = None;
            field.lock().unwrap().kill(node);
            thread::sleep(pause);
            let mut field = field.lock().unwrap();
            field.serve(node);
            addresses.lock().unwrap()[node] = Some(field.web(node).address.clone());
        }
        2 => {
            println!("  node {node} is frozen past its lease for {pause:?}");
            field.lock().unwrap().freeze(node);
            field.lock().unwrap().age(node);
            thread::sleep(pause);
            field.lock().unwrap().thaw(node);
        }
        3 => {
            println!("  the database is killed, and back after {pause:?}");
            let field = field.lock().unwrap();
            field.cluster.stop();
            thread::sleep(pause);
            field.cluster.start_again();
        }
        4 => {
            println!("  node {node} is stopped in order, and back after {pause:?}");
            addresses.lock().unwrap()[node] = None;
            field.lock().unwrap().stop(node);
            thread::sleep(pause);
            let mut field = field.lock().unwrap();
            field.serve(node);
            addresses.lock().unwrap()[node] = Some(field.web(node).address.clone());
        }
        _ => {
            println!("  all connections are cut");
            let field = field.lock().unwrap();
            field.cluster.cut_connections(&field.database);
        }
    }
}

/// A person who says yes to whatever is asked, at whichever node.
fn decide(field: &Mutex<&mut Field>, addresses: &Addresses, operator: &str, decides: &AtomicBool) {
    let mut turn = 0;
    while decides.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(100));
        let asked = {
            let field = field.lock().unwrap();
            let query = "SELECT approval_id FROM approvals WHERE state = 'pending'";
            field.cluster.run(&field.database, query).unwrap_or_default()
        };
        for question in asked.lines() {
            turn += 1;
            let address = addresses.lock().unwrap()[turn % NODES].clone();
            let path = format!("/api/v1/approvals/{question}/decision");
            let yes = json!({"decision": "approve", "reason": "it is fine"});
            if let Some(address) = address {
                let _ = attempt_at(&address, &path, operator, &yes, Duration::from_secs(2));
            }
        }
    }
}

impl Client<'_> {
    fn work(mut self, number: u64, is_over: &AtomicBool) -> Self {
        let mut id = 0;
        while !is_over.load(Ordering::Relaxed) {
            id += 1;
            let word = format!("w-{number}-{id}");
            match self.dice.roll(10) {
                0 => self.start_job(id),
                1 | 2 => {
                    let made = json!({"command": format!("mkdir {word}")});
                    let told = self.insist(id, "execute_command", made);
                    self.directories.insert(word, told);
                }
                _ => {
                    let line = format!("echo {word} >> acts; sleep 0.0{}", self.dice.roll(9));
                    let told = self.insist(id, "execute_process", json!({"file": "sh", "args": ["-c", line]}));
                    self.commands.insert(word, told);
                }
            }
        }
        self
    }

    /// Sends the same request until it is answered with what it came to.
    fn insist(&mut self, id: i64, tool: &str, arguments: Value) -> Told {
        let message = legacy(id, "tools/call", json!({"name": tool, "arguments": arguments}));
        let deadline = Instant::now() + ENOUGH;
        let mut last = String::new();
        loop {
            assert!(Instant::now() < deadline, "no answer to {message}; last: {last}");
            match self.ask(&message) {
                Some(answer) => {
                    let facts = &answer["result"]["structuredContent"];
                    let text = |name: &str| facts[name].as_str().unwrap_or_default().to_owned();
                    let told = Told {
                        request_id: text("request_id"),
                        status: text("status"),
                        code: text("error_code"),
                        exit: facts["exit_code"].as_i64(),
                    };
                    let is_final =
                        !matches!(told.status.as_str(), "" | "running" | "pending") && told.code != "AUDIT_UNAVAILABLE";
                    if is_final {
                        return told;
                    }
                    last = answer.to_string();
                }
                None => last = "nothing".to_owned(),
            }
            thread::sleep(Duration::from_millis(30));
        }
    }

    /// A job is asked for once: whether one that was not answered has begun, only the record knows.
    fn start_job(&mut self, id: i64) {
        let task = json!({"name": "start-task", "arguments": {"agent": "mine", "prompt": "greet"}});
        let answer = self.ask(&legacy(id, "tools/call", task)).unwrap_or_default();
        if let Some(job) = answer["result"]["structuredContent"]["jobId"].as_str() {
            self.jobs.push(job.to_owned());
        }
    }

    fn ask(&mut self, message: &Value) -> Option<Value> {
        let node = self.dice.roll(NODES as u64) as usize;
        let address = self.addresses.lock().unwrap()[node].clone()?;
        let (status, body) = attempt_at(&address, "/mcp", &self.session, message, CLIENT_PATIENCE).ok()?;
        (status == 200).then(|| message_of(&body)).flatten()
    }
}

/// What must hold when all is quiet again.
fn settle(field: &Field, clients: &[Client<'_>]) {
    let ended = "SELECT count(*) FROM jobs WHERE status IN ('pending', 'running')";
    eventually("every job ends", || field.count(ended) == 0);
    eventually("no record stays open", || {
        field.count("SELECT count(*) FROM open_commands") + field.count("SELECT count(*) FROM open_acts") == 0
    });
    let ran = fs::read_to_string(field.bench.work().join("acts")).unwrap_or_default();
    let (mut done, mut unknown) = (0, 0);
    for (word, told) in clients.iter().flat_map(|client| &client.commands) {
        let times = ran.lines().filter(|line| line == word).count();
        match (told.status.as_str(), told.code.as_str()) {
            ("ok", _) => assert_eq!(times, 1, "{word}: {told:?}"),
            // Its node died under it, or was taken for dead.
            ("failed", "ABANDONED") => assert!(times <= 1, "{word} ran {times} times: {told:?}"),
            _ => panic!("{word}: {told:?}"),
        }
        done += usize::from(told.status == "ok");
        unknown += usize::from(told.status != "ok");
    }
    for (word, told) in clients.iter().flat_map(|client| &client.directories) {
        match (told.status.as_str(), told.code.as_str()) {
            // A second time it would have failed: it was there.
            ("ok", _) => assert!(field.bench.work().join(word).is_dir(), "{word}: {told:?}"),
            ("failed", "ABANDONED") => {}
            _ => panic!("{word}: {told:?}"),
        }
        done += usize::from(told.exit == Some(0));
    }
    let jobs: Vec<&String> = clients.iter().flat_map(|client| &client.jobs).collect();
    println!("  {done} done, {unknown} unknown, {} jobs", jobs.len());
    recorded_once(field, clients);
    for job in jobs {
        let events = field.events(job);
        let ends = ["job-completed", "job-failed", "job-cancelled", "job-timeout"];
        let count = |wanted: &[&str]| events.iter().filter(|kind| wanted.contains(&kind.as_str())).count();
        assert_eq!((count(&["job-created"]), count(&ends)), (1, 1), "{job}: {events:?}");
    }
    eventually("no agent is left", || {
        field.count("SELECT count(*) FROM agent_processes") == 0
    });
    field.prove();
}

/// Whatever was acknowledged stands in the record once, as it was told.
fn recorded_once(field: &Field, clients: &[Client<'_>]) {
    let ends = field.sql(
        "SELECT payload::json ->> 'request_id', payload::json ->> 'status', coalesce(payload::json ->> 'error_code', '')
         FROM flow_events WHERE event_type = 'command.completed'",
    );
    let mut recorded: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for line in ends.lines() {
        let mut parts = line.split('|');
        let (Some(id), Some(status), Some(code)) = (parts.next(), parts.next(), parts.next()) else {
            panic!("{line}");
        };
        recorded.entry(id).or_default().push((status, code));
    }
    let twice: Vec<_> = recorded.iter().filter(|(_, ends)| ends.len() > 1).collect();
    assert!(twice.is_empty(), "ended twice: {twice:?}");
    let told = clients
        .iter()
        .flat_map(|client| client.commands.values().chain(client.directories.values()));
    for told in told {
        let ends = recorded.get(told.request_id.as_str());
        assert_eq!(
            ends,
            Some(&vec![(told.status.as_str(), told.code.as_str())]),
            "{told:?}"
        );
    }
}
