//! The product to talk to: how a client starts it on its own pipes, and one that listens.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::bench::Bench;

/// How long starting, stopping and answering may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A bench whose server runs what the clients call, without asking, and nothing else.
pub(crate) fn bench() -> Bench {
    Bench::allowing("echo,sh,sleep")
}

/// The target of a client that starts the server itself.
pub(crate) fn on_stdio(bench: &Bench, era: &str) -> Value {
    let command = bench.command();
    let text = |word: &OsStr| word.to_str().unwrap().to_owned();
    let env: Map<String, Value> = command
        .get_envs()
        .map(|(name, value)| (text(name), text(value.unwrap_or_default()).into()))
        .collect();
    let mut args: Vec<String> = command.get_args().map(text).collect();
    args.push("stdio".to_owned());
    json!({
        "transport": "stdio",
        "era": era,
        "command": text(command.get_program()),
        "args": args,
        "env": env,
        "cwd": bench.work().to_str().unwrap(),
    })
}

/// A server that listens on a port of its own.
pub(crate) struct Listening {
    child: Child,
    address: String,
    stderr: Option<JoinHandle<String>>,
}

impl Listening {
    pub(crate) fn start(bench: &Bench, flags: &[&str]) -> Self {
        let mut command = bench.command();
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(flags);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, address) = mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let stderr = std::thread::spawn(move || {
            let mut said = String::new();
            for line in stderr.lines().map_while(Result::ok) {
                if let Some(url) = line.strip_prefix("serving on http://") {
                    let _ = sender.send(url.trim_end_matches('/').to_owned());
                }
                said.push_str(&line);
                said.push('\n');
            }
            said
        });
        let Ok(address) = address.recv_timeout(PATIENCE) else {
            let _ = child.kill();
            panic!("the server does not listen: {}", stderr.join().unwrap());
        };
        Self {
            child,
            address,
            stderr: Some(stderr),
        }
    }

    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The target of a client of one of its transports.
    pub(crate) fn target(&self, transport: &str, era: &str) -> Value {
        let path = if transport == "sse" { "/sse" } else { "/mcp" };
        json!({"transport": transport, "era": era, "url": self.url(path)})
    }

    /// Stops it and returns what it said; a panic among that is a failure.
    pub(crate) fn stop(mut self) -> String {
        self.ask_to_stop();
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "the server does not stop");
            std::thread::sleep(Duration::from_millis(5));
        };
        let said = self.stderr.take().unwrap().join().unwrap();
        assert!(status.success(), "{status}: {said}");
        assert!(!said.contains("panicked"), "{said}");
        said
    }

    fn ask_to_stop(&self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
    }

    /// What it and everything below it hold now.
    pub(crate) fn burden(&self) -> Burden {
        Burden::of(self.child.id())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if self.stderr.is_some() && matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
            if std::thread::panicking() {
                let said = self.stderr.take().unwrap().join().unwrap_or_default();
                eprintln!("--- the server said\n{said}");
            }
        }
    }
}

/// What a process tree holds of the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burden {
    pub(crate) processes: usize,
    pub(crate) descriptors: usize,
    pub(crate) resident_kib: usize,
}

impl Burden {
    fn of(pid: u32) -> Self {
        let mut burden = Self {
            processes: 0,
            descriptors: 0,
            resident_kib: 0,
        };
        let mut todo = vec![pid];
        while let Some(pid) = todo.pop() {
            burden.processes += 1;
            let of = |name: &str| format!("/proc/{pid}/{name}");
            burden.descriptors += fs::read_dir(of("fd")).map_or(0, Iterator::count);
            let status = fs::read_to_string(of("status")).unwrap_or_default();
            let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let kib = resident.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
            burden.resident_kib += kib.unwrap_or(0);
            let children = fs::read_to_string(of(&format!("task/{pid}/children"))).unwrap_or_default();
            todo.extend(
                children
                    .split_whitespace()
                    .filter_map(|child| child.parse::<u32>().ok()),
            );
        }
        burden
    }
}
