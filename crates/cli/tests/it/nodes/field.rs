//! Several nodes on one database: real servers, each with a state directory and an address of its own, on a
//! PostgreSQL that can be taken away from them.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::{Bench, is_root};
use crate::client::{PATIENCE, eventually};
use crate::outside::send;
use crate::postgres::{Cluster, Database};
use crate::web::{Web, legacy};

/// The nodes of a field go by these places.
pub(super) const A: usize = 0;
pub(super) const B: usize = 1;
pub(super) const C: usize = 2;

/// What makes the binary a node.
pub(super) const SERVE: [&str; 3] = ["serve", "--listen", "127.0.0.1:0"];

pub(super) struct Field {
    pub(super) bench: Bench,
    pub(super) cluster: Cluster,
    pub(super) database: Database,
    nodes: Vec<Option<Web>>,
}

impl Field {
    /// So many nodes on a bench; none where PostgreSQL is not installed.
    pub(super) fn of(nodes: usize, bench: Bench) -> Option<Self> {
        let mut field = Self::empty(nodes, bench)?;
        (0..nodes).for_each(|node| field.serve(node));
        Some(field)
    }

    /// The same before any node has started.
    pub(super) fn empty(nodes: usize, bench: Bench) -> Option<Self> {
        let cluster = Cluster::start()?;
        let database = cluster.database();
        let bench = bench.env("COUNTERSIGN_DATABASE", &database.url);
        let field = Self {
            bench,
            cluster,
            database,
            nodes: (0..nodes).map(|_| None).collect(),
        };
        for node in 0..nodes {
            std::fs::create_dir(field.state(node)).unwrap();
        }
        Some(field)
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn state(&self, node: usize) -> PathBuf {
        self.bench.path(&format!("state/node-{node}"))
    }

    /// The binary as it is run on a node. Every node calls its state directory alike, as machines that are set up alike
    /// do: the path is part of the policy under which an answer counts. Only root can arrange for that on one machine.
    pub(super) fn command(&self, node: usize) -> Command {
        let mut bare = self.bench.command();
        bare.env("USER", "ana");
        if !is_root() {
            bare.env("COUNTERSIGN_STATE_DIR", self.state(node));
            return bare;
        }
        let here = self.bench.path("state/here");
        let _ = std::fs::create_dir(&here);
        let mut command = Command::new("unshare");
        command
            .args([
                "--mount",
                "--",
                "sh",
                "-c",
                r#"mount --bind "$1" "$2" && shift 2 && exec "$@""#,
                "node",
            ])
            .args([&self.state(node), &here])
            .arg(bare.get_program())
            .env_clear()
            .envs(bare.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .env("COUNTERSIGN_STATE_DIR", &here)
            .current_dir(self.bench.work());
        command
    }

    pub(super) fn run(&self, node: usize, arguments: &[&str]) -> Output {
        self.command(node).args(arguments).output().unwrap()
    }

    #[track_caller]
    pub(super) fn told(&self, node: usize, arguments: &[&str]) -> String {
        let output = self.run(node, arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(super) fn serve(&mut self, node: usize) {
        self.nodes[node] = Some(Web::of(self.command(node).args(SERVE)));
    }

    pub(super) fn web(&self, node: usize) -> &Web {
        self.nodes[node].as_ref().expect("the node serves")
    }

    /// Ends a node the hard way.
    pub(super) fn kill(&mut self, node: usize) {
        self.nodes[node].take().expect("the node serves").kill();
    }

    /// Ends it as an operator would.
    pub(super) fn stop(&mut self, node: usize) {
        self.nodes[node].take().expect("the node serves").stop();
    }

    /// A node that is there and does nothing, as one whose machine is frozen.
    pub(super) fn freeze(&self, node: usize) {
        self.signal(node, "-STOP");
    }

    pub(super) fn thaw(&self, node: usize) {
        self.signal(node, "-CONT");
    }

    fn signal(&self, node: usize, signal: &str) {
        let pid = self.web(node).pid().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Lets the time pass in which a silent node still counts as alive. The database keeps that time, so it
    /// can be told that it has passed already.
    pub(super) fn age(&self, node: usize) {
        let name = std::fs::read_to_string(self.state(node).join("record-node")).unwrap();
        let aged = format!(
            "UPDATE processes SET seen_at = seen_at - interval '10 minutes' WHERE node = '{}'",
            name.trim()
        );
        self.sql(&aged);
    }

    #[track_caller]
    pub(super) fn sql(&self, statement: &str) -> String {
        self.cluster.run(&self.database, statement).unwrap()
    }

    #[track_caller]
    pub(super) fn count(&self, query: &str) -> i64 {
        self.sql(query).parse().unwrap()
    }

    /// A session that was begun at a node.
    pub(super) fn session(&self, node: usize) -> String {
        self.web(node).session(json!({}))
    }

    /// The header of a new token of this role.
    #[track_caller]
    pub(super) fn token(&self, role: &str, name: &str) -> String {
        let made = self.told(A, &["tokens", "create", "--role", role, "--name", name, "--json"]);
        let made: Value = serde_json::from_str(&made).unwrap();
        let header = format!("Authorization: Bearer {}\r\n", made["token"].as_str().unwrap());
        // A token reaches a running server within a second.
        for web in self.nodes.iter().flatten() {
            eventually("the token is known", || {
                send(&web.address, "GET", "/api/v1/sessions", &header, "").0 != 401
            });
        }
        header
    }

    /// Calls a tool at a node and gives what it answered.
    #[track_caller]
    pub(super) fn call(&self, node: usize, session: &str, id: i64, tool: &str, arguments: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        let (_, answer) = self.web(node).post("/mcp", session, &legacy(id, "tools/call", params));
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"]["structuredContent"].clone()
    }

    /// The one question that is open, once it is.
    #[track_caller]
    pub(super) fn question(&self) -> String {
        let mut found = String::new();
        eventually("something is asked", || {
            found = self.sql("SELECT approval_id FROM approvals WHERE state = 'pending' LIMIT 1");
            !found.is_empty()
        });
        found
    }

    /// The job as a node shows it, once this holds.
    #[track_caller]
    pub(super) fn until_job(&self, job: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut shown = Value::Null;
        let node = (0..self.len()).find(|node| self.nodes[*node].is_some()).unwrap_or(A);
        eventually(what, || {
            shown = serde_json::from_str(&self.told(node, &["jobs", "show", job, "--json"])).unwrap();
            is_so(&shown)
        });
        shown
    }

    /// The types of a job's events as they are kept, in order.
    pub(super) fn events(&self, job: &str) -> Vec<String> {
        let query = format!(
            "SELECT type FROM job_events WHERE session_id = (SELECT session_id FROM jobs WHERE job_id = '{job}') ORDER BY seq"
        );
        self.sql(&query).lines().map(str::to_owned).collect()
    }

    /// Each node that ever served proves the whole record.
    #[track_caller]
    pub(super) fn prove(&self) {
        for node in (0..self.len()).filter(|node| self.state(*node).join("record-node").exists()) {
            let proof: Value = serde_json::from_str(&self.told(node, &["audit", "verify", "--json"])).unwrap();
            assert_eq!(proof["ok"], true, "{proof}");
        }
    }
}

/// Says what the nodes said, for whoever reads why a test failed.
impl Drop for Field {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for (place, node) in self.nodes.iter().enumerate() {
            match node {
                Some(web) => println!("node {place} said:\n{}", web.said()),
                None => println!("node {place} does not serve"),
            }
        }
        let jobs = "SELECT job_id, status, sub_state, version, holder, retries, error FROM jobs ORDER BY created_at_ms";
        println!("jobs:\n{}", self.cluster.run(&self.database, jobs).unwrap_or_default());
        let runs = "SELECT run_id, status, job_id, reason FROM runs";
        println!("runs:\n{}", self.cluster.run(&self.database, runs).unwrap_or_default());
        let open = "SELECT * FROM open_commands";
        println!("open:\n{}", self.cluster.run(&self.database, open).unwrap_or_default());
    }
}

/// Posts a message to a server that may go at any moment; an error when no whole answer came.
pub(super) fn attempt(address: &str, headers: &str, message: &Value) -> io::Result<(u16, String)> {
    attempt_at(address, "/mcp", headers, message, PATIENCE)
}

/// The same at another path, by a client of another patience.
pub(super) fn attempt_at(
    address: &str,
    path: &str,
    headers: &str,
    message: &Value,
    patience: Duration,
) -> io::Result<(u16, String)> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(patience))?;
    let body = message.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Accept: application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + &body).as_bytes())?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or(io::ErrorKind::InvalidData)?, body.to_owned()))
}

/// The last message of an answer, whether it came whole or as a stream.
pub(super) fn message_of(body: &str) -> Option<Value> {
    let whole = body.lines().filter(|line| line.starts_with('{'));
    let events = body.lines().filter_map(|line| line.strip_prefix("data: "));
    whole
        .chain(events)
        .filter_map(|line| serde_json::from_str(line).ok())
        .next_back()
}
