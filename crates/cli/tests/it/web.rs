//! The server over HTTP, and a client that speaks it plainly. What it hears is held against the schema.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::PATIENCE;
use crate::shared::schema::Wire;

/// A request of the revisions with sessions.
pub(crate) fn legacy(id: i64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

pub(crate) struct Web {
    child: Child,
    pub(crate) address: String,
    said: Arc<Mutex<String>>,
}

impl Web {
    pub(crate) fn serve(bench: &Bench) -> Self {
        Self::serve_with(bench, &["--listen", "127.0.0.1:0"])
    }

    /// The same with other arguments.
    pub(crate) fn serve_with(bench: &Bench, arguments: &[&str]) -> Self {
        Self::of(bench.command().arg("serve").args(arguments))
    }

    /// A server by a command that starts it.
    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let mut before = String::new();
        let address = said.find_map(|line| {
            before += &format!("{line}\n");
            let (_, url) = line.strip_prefix("serving on ")?.split_once("://")?;
            Some(url.trim_end_matches('/').to_owned())
        });
        let address = address.unwrap_or_else(|| panic!("it does not say where it listens: {before}"));
        let kept = Arc::new(Mutex::new(before));
        let heard = Arc::clone(&kept);
        // Whoever writes to a pipe that nobody reads comes to a halt.
        std::thread::spawn(move || said.for_each(|line| *heard.lock().unwrap() += &format!("{line}\n")));
        Self {
            child,
            address,
            said: kept,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it said on standard error so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Where agents reach it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// The header of a new session, of a client that can do this.
    pub(crate) fn session(&self, capabilities: Value) -> String {
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}});
        self.session_with("", &hello)
    }

    /// The same for a client that says this, with more headers.
    pub(crate) fn session_with(&self, headers: &str, hello: &Value) -> String {
        let begun = self.ask(
            "POST",
            "/mcp",
            headers,
            &legacy(0, "initialize", hello.clone()),
            "close",
        );
        let mut begun = begun.lines().map_while(Result::ok);
        let session = begun.find_map(|line| line.strip_prefix("mcp-session-id: ").map(str::to_owned));
        format!("Mcp-Session-Id: {}\r\n", session.expect("a session"))
    }

    /// Status and message of an answer that is not a stream, or the last message of one that is.
    pub(crate) fn post(&self, path: &str, headers: &str, message: &Value) -> (u16, Value) {
        let mut wire = wire_of(message);
        let (status, body) = self.whole(path, headers, message);
        let whole = body.lines().filter(|line| line.starts_with('{'));
        let events = body.lines().filter_map(|line| line.strip_prefix("data: "));
        let messages: Vec<Value> = whole
            .chain(events)
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        for heard in &messages {
            wire.received(heard);
        }
        (status, messages.last().cloned().unwrap_or_default())
    }

    /// Status and body of what people use.
    pub(crate) fn rest(&self, path: &str, headers: &str, body: &Value) -> (u16, Value) {
        let (status, body) = self.whole(path, headers, body);
        (status, serde_json::from_str(body.trim()).expect("JSON"))
    }

    fn whole(&self, path: &str, headers: &str, message: &Value) -> (u16, String) {
        let mut answer = String::new();
        self.ask("POST", path, headers, message, "close")
            .read_to_string(&mut answer)
            .unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("a status"), body.to_owned())
    }

    /// An answer that is read as it comes.
    pub(crate) fn stream(&self, method: &str, path: &str, headers: &str, message: &Value) -> Stream {
        Stream {
            wire: wire_of(message),
            lines: self.ask(method, path, headers, message, "keep-alive"),
        }
    }

    fn ask(&self, method: &str, path: &str, headers: &str, message: &Value, connection: &str) -> BufReader<TcpStream> {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = if message.is_null() {
            String::new()
        } else {
            message.to_string()
        };
        let accept = match (headers.contains("Accept:"), method) {
            (true, _) => "",
            (false, "GET") => "Accept: text/event-stream\r\n",
            (false, _) => "Accept: application/json, text/event-stream\r\n",
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nConnection: {connection}\r\n\
             {accept}{headers}Content-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        socket.write_all((head + &body).as_bytes()).unwrap();
        BufReader::new(socket)
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Lets it read its configuration again.
    pub(crate) fn hang_up(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    }

    /// Ends it as an operator would.
    pub(crate) fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }

    /// Waits for its end, and gives its exit code.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Ends it the hard way.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Stream {
    wire: Wire,
    lines: BufReader<TcpStream>,
}

impl Stream {
    /// The next message that is wanted; what comes before it is passed over.
    pub(crate) fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.line();
            let data = line.strip_prefix("data: ").unwrap_or(&line);
            if let Ok(message @ Value::Object(_)) = serde_json::from_str::<Value>(data) {
                self.wire.received(&message);
                if wanted(&message) {
                    return message;
                }
            }
        }
    }

    /// The first line of the answer.
    pub(crate) fn head(&mut self) -> String {
        self.line()
    }

    /// Where messages go, as the first event of the older transport says.
    pub(crate) fn endpoint(&mut self) -> String {
        loop {
            if let Some(endpoint) = self.line().strip_prefix("data: /") {
                return format!("/{endpoint}");
            }
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.lines.read_line(&mut line).unwrap() > 0, "the stream ended");
        line.trim_end().to_owned()
    }
}

fn wire_of(message: &Value) -> Wire {
    let modern = message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].is_string();
    let mut wire = Wire::of(if modern { "2026-07-28" } else { "2025-11-25" });
    wire.sent(message);
    wire
}
