//! A client of the real server. Every message that passes through here is held against the protocol's
//! schema, and every tool answer against the contract: the schema's fields, S0's rules for a result, and
//! the same facts in the text.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::shared::schema::Wire;

/// A test that has to wait this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is so.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it did not happen: {what}");
        std::thread::sleep(Duration::from_millis(30));
    }
}

pub(crate) struct Server {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    messages: Receiver<Value>,
    wire: Wire,
    answers: HashMap<i64, Value>,
    pub(crate) notes: Vec<Value>,
    stderr: Option<JoinHandle<String>>,
    next: i64,
}

impl Server {
    /// Starts the server of a bench and a session with it.
    pub(crate) fn start(bench: &Bench) -> Self {
        Self::start_able(bench, json!({}))
    }

    /// The same, of a client that can do this.
    pub(crate) fn start_able(bench: &Bench, capabilities: Value) -> Self {
        let mut child = bench
            .command()
            .arg("stdio")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut stderr = child.stderr.take().unwrap();
        let (sender, messages) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not the protocol: {line}"));
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        let stderr = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        let stdin = child.stdin.take();
        let mut server = Self {
            child,
            stdin,
            messages,
            wire: Wire::default(),
            answers: HashMap::new(),
            notes: Vec::new(),
            stderr: Some(stderr),
            next: 0,
        };
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "test", "version": "1"}});
        let id = server.request("initialize", hello);
        assert!(server.answer(id)["result"]["capabilities"].is_object());
        server.notify("notifications/initialized", json!({}));
        server
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.wire.sent_bytes(bytes);
        let stdin = self.stdin.as_mut().expect("input is open");
        stdin
            .write_all(bytes)
            .and_then(|()| stdin.flush())
            .expect("the server reads");
    }

    /// Sends a request and returns its id.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> i64 {
        self.next += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        self.raw(format!("{message}\n").as_bytes());
        self.next
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.raw(format!("{message}\n").as_bytes());
    }

    /// The answer to a request, whatever is said before it.
    pub(crate) fn answer(&mut self, id: i64) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return answer;
            }
            match self
                .messages
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(message) => self.sort(message),
                Err(RecvTimeoutError::Timeout) => panic!("no answer to {id} in time"),
                Err(RecvTimeoutError::Disconnected) => panic!("the server went away: {}", self.stderr()),
            }
        }
    }

    /// The next thing that the server asks, or says, by this method.
    pub(crate) fn told(&mut self, method: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(place) = self.notes.iter().position(|note| note["method"] == method) {
                return self.notes.remove(place);
            }
            match self
                .messages
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(message) => self.sort(message),
                Err(_) => panic!("no `{method}` in time: {:?}", self.notes),
            }
        }
    }

    /// Answers what the server asked.
    pub(crate) fn reply(&mut self, question: &Value, result: &Value) {
        let message = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
        self.raw(format!("{message}\n").as_bytes());
    }

    /// What was answered until the server stopped talking.
    pub(crate) fn rest(&mut self) -> HashMap<i64, Value> {
        while let Ok(message) = self.messages.recv_timeout(PATIENCE) {
            self.sort(message);
        }
        std::mem::take(&mut self.answers)
    }

    /// Takes what has already arrived.
    pub(crate) fn has_answered(&mut self, id: i64) -> bool {
        while let Ok(message) = self.messages.try_recv() {
            self.sort(message);
        }
        self.answers.contains_key(&id)
    }

    fn sort(&mut self, message: Value) {
        self.wire.received(&message);
        match message["id"].as_i64() {
            Some(id) => drop(self.answers.insert(id, message)),
            None => self.notes.push(message),
        }
    }

    pub(crate) fn call_later(&mut self, tool: &str, arguments: Value) -> i64 {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    pub(crate) fn result(&mut self, id: i64) -> Outcome {
        Outcome::read(&self.answer(id))
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Outcome {
        let id = self.call_later(tool, arguments);
        self.result(id)
    }

    /// Holds the content of an answer against what the tool promises of it, as clients do.
    pub(crate) fn assert_promised(&mut self, tool: &str, content: &Value) {
        let id = self.request("tools/list", json!({}));
        let tools = self.answer(id)["result"]["tools"].take();
        let tools = tools.as_array().unwrap();
        let Some(tool) = tools.iter().find(|it| it["name"] == tool) else {
            return;
        };
        let schema = jsonschema::validator_for(&tool["outputSchema"]).unwrap();
        let broken: Vec<_> = schema.iter_errors(content).map(|error| error.to_string()).collect();
        assert!(broken.is_empty(), "{broken:?}\n{content}");
    }

    /// A shell line.
    pub(crate) fn line(&mut self, line: &str) -> Outcome {
        self.call("execute_command", json!({"command": line}))
    }

    /// A program with arguments.
    pub(crate) fn process(&mut self, file: &str, args: &[&str]) -> Outcome {
        self.call("execute_process", json!({"file": file, "args": args}))
    }

    /// Makes a call that must wait for a person; gives what they would see, and takes the call back.
    #[track_caller]
    pub(crate) fn asked(&mut self, bench: &Bench, tool: &str, arguments: Value) -> Value {
        let id = self.call_later(tool, arguments);
        let (question, details) = bench.question();
        assert!(!self.has_answered(id), "it did not wait");
        self.notify("notifications/cancelled", json!({"requestId": id}));
        bench.until(&question, "withdrawn");
        details
    }

    pub(crate) fn ping(&mut self) {
        let id = self.request("ping", json!({}));
        assert_eq!(self.answer(id)["result"], json!({}));
    }

    /// Closes the input and waits for the end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        drop(self.stdin.take());
        self.gone()
    }

    pub(crate) fn gone(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the server the hard way.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// What the server said on standard error; to be asked when it has ended.
    pub(crate) fn stderr(&mut self) -> String {
        self.stderr
            .take()
            .map(|thread| thread.join().unwrap())
            .unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(15);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The result of a tool call.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) structured: Value,
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

/// The fields that every result has.
const FIELDS: [&str; 19] = [
    "request_id",
    "status",
    "exit_code",
    "stdout",
    "stderr",
    "error_code",
    "error_message",
    "retryable",
    "duration_ms",
    "started_at",
    "finished_at",
    "stdout_bytes",
    "stderr_bytes",
    "stdout_truncated",
    "stderr_truncated",
    "stdout_lossy",
    "stderr_lossy",
    "audit_id",
    "sandbox",
];

/// Those that some results have.
const SOMETIMES: [&str; 5] = ["error_details", "approval_id", "offset", "next_offset", "next"];

impl Outcome {
    /// Reads an answer and holds it against the contract.
    pub(crate) fn read(answer: &Value) -> Self {
        let result = &answer["result"];
        assert!(result.is_object(), "not a tool result: {answer}");
        let outcome = Self {
            structured: result["structuredContent"].clone(),
            text: result["content"][0]["text"].as_str().expect("text content").to_owned(),
            is_error: result["isError"].as_bool().unwrap_or(false),
        };
        outcome.keeps_the_contract();
        outcome
    }

    fn keeps_the_contract(&self) {
        let facts = &self.structured;
        for field in FIELDS {
            assert!(facts.get(field).is_some(), "`{field}` is missing: {facts}");
        }
        for field in facts.as_object().into_iter().flat_map(|facts| facts.keys()) {
            let is_known = FIELDS.contains(&field.as_str()) || SOMETIMES.contains(&field.as_str());
            assert!(is_known, "the schema does not name `{field}`: {facts}");
        }
        let (code, ended) = (facts["error_code"].as_str(), facts["finished_at"].is_string());
        match self.status() {
            "ok" => assert!(facts["exit_code"] == 0 && code.is_none() && ended, "{facts}"),
            "rejected" => assert!(code.is_some() && facts["exit_code"].is_null() && ended, "{facts}"),
            "timeout" => assert!(code == Some("COMMAND_TIMEOUT") && ended, "{facts}"),
            "failed" => assert!(code.is_some() && ended, "{facts}"),
            "running" => assert!(code.is_none() && !ended, "{facts}"),
            "pending" => {
                let asked = facts["approval_id"].is_string();
                assert!(code == Some("APPROVAL_PENDING") && !ended && asked, "{facts}");
            }
            other => panic!("`{other}` is no status: {facts}"),
        }
        assert_eq!(code.is_some(), facts["error_message"].is_string(), "{facts}");
        assert_eq!(self.is_error, !matches!(self.status(), "ok" | "running"), "{facts}");
        // Reading a megabyte of YAML proves nothing that a kilobyte does not.
        if self.text.len() < 64 << 10 {
            let yaml: Value =
                serde_saphyr::from_str(&self.text).unwrap_or_else(|error| panic!("not YAML: {error}\n{}", self.text));
            assert_eq!(&yaml, facts, "the text says something else");
        }
    }

    pub(crate) fn status(&self) -> &str {
        self.structured["status"].as_str().expect("a status")
    }

    pub(crate) fn code(&self) -> &str {
        self.structured["error_code"].as_str().unwrap_or("")
    }

    pub(crate) fn message(&self) -> &str {
        self.structured["error_message"].as_str().unwrap_or("")
    }

    pub(crate) fn stdout(&self) -> &str {
        self.structured["stdout"].as_str().expect("stdout")
    }

    pub(crate) fn stderr(&self) -> &str {
        self.structured["stderr"].as_str().expect("stderr")
    }

    pub(crate) fn id(&self) -> &str {
        self.structured["request_id"].as_str().expect("a request id")
    }

    pub(crate) fn layers(&self) -> Vec<&str> {
        self.structured["sandbox"]
            .as_array()
            .expect("layers")
            .iter()
            .filter_map(Value::as_str)
            .collect()
    }

    /// Ran and ended with 0; what it printed.
    #[track_caller]
    pub(crate) fn ok(&self) -> &str {
        assert_eq!(self.status(), "ok", "{}", self.text);
        self.stdout()
    }

    /// Did not run, for this reason.
    #[track_caller]
    pub(crate) fn refused(&self, code: &str) -> &Self {
        assert_eq!((self.status(), self.code()), ("rejected", code), "{}", self.text);
        assert_eq!((self.stdout(), self.stderr()), ("", ""), "{}", self.text);
        self
    }

    #[track_caller]
    pub(crate) fn failed(&self, code: &str) -> &Self {
        assert_eq!((self.status(), self.code()), ("failed", code), "{}", self.text);
        self
    }
}
