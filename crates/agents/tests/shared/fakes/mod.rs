//! Model servers on loopback. What the "model" does is said by a mark in the last message of the human, so a
//! server keeps no state:
//!
//! * `[[say TEXT]]`: one message;
//! * `[[shell CMD]]`, `[[write PATH TEXT]]`, `[[patch PATH TEXT]]`: a tool call, then a message;
//! * `[[shell! CMD]]`: the same, asking to be let out of the sandbox;
//! * `[[tool NAME JSON]]`: any tool call, then a message;
//! * `[[slow N]]`: N pieces of text, a tenth of a second apart;
//! * `[[hang]]`: nothing, until the agent leaves;
//! * `[[http CODE]]`: an error of the server;
//! * `[[limit SECONDS]]`: a usage limit that is reset that long from now.

pub(crate) mod messages;
pub(crate) mod responses;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde_json::Value;

/// What a model is told to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    pub(crate) name: String,
    pub(crate) argument: String,
}

impl Mark {
    pub(crate) fn in_text(text: &str) -> Mark {
        let inner = text.split_once("[[").and_then(|(_, rest)| rest.split_once("]]"));
        let (name, argument) = match inner {
            Some((inner, _)) => inner.split_once(' ').unwrap_or((inner, "")),
            None => ("say", text),
        };
        Mark {
            name: name.to_owned(),
            argument: argument.to_owned(),
        }
    }
}

/// An id that nothing else has: agents take two answers with one id for one.
fn fresh(kind: &str) -> String {
    static LAST: AtomicU64 = AtomicU64::new(1);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    format!("{kind}_{}_{number}", std::process::id())
}

/// When a limit is reset, in seconds since 1970.
fn reset_after(seconds: &str) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    now.as_secs() + seconds.parse::<u64>().unwrap()
}

/// A request as a handler sees it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

/// A server that ends with the test process.
pub(crate) struct Server {
    pub(crate) address: String,
    /// All requests so far.
    pub(crate) seen: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub(crate) fn start(answer: fn(Request, &mut Reply)) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let log = Arc::clone(&log);
                std::thread::spawn(move || {
                    if let Some(request) = read(&stream) {
                        log.lock().unwrap().push(request.clone());
                        answer(request, &mut Reply { stream });
                    }
                });
            }
        });
        Server { address, seen }
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim().split_once(':') {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
            None => break,
        }
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(Request {
        method,
        path: path.split('?').next()?.to_owned(),
        headers,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    })
}

/// The way back. Every answer ends its connection.
pub(crate) struct Reply {
    stream: TcpStream,
}

impl Reply {
    pub(crate) fn json(&mut self, status: u16, value: &Value) {
        self.json_with(status, "", value);
    }

    /// The same with further headers, each ended by its line break.
    pub(crate) fn json_with(&mut self, status: u16, headers: &str, value: &Value) {
        let body = value.to_string();
        let _ = write!(
            self.stream,
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
    }

    pub(crate) fn begin_events(&mut self) {
        let _ = self
            .stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n");
    }

    pub(crate) fn event(&mut self, value: &Value) {
        let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
        let _ = write!(self.stream, "event: {kind}\ndata: {value}\n\n");
    }

    /// Says nothing until the other side leaves.
    pub(crate) fn hang(&mut self) {
        while self.stream.write_all(b": still here\n\n").is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub(crate) fn pause(&mut self) {
        std::thread::sleep(Duration::from_millis(100));
    }
}
