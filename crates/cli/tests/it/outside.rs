//! The world outside: a `serve` of a bench, services that it asks, and plain HTTP in both directions.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bench::Bench;
use crate::client::PATIENCE;

/// A port that nobody listens on now.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The HTTP server of a bench, where its configuration says.
pub(crate) struct Serving {
    child: Child,
    pub(crate) address: String,
}

impl Serving {
    pub(crate) fn start(bench: &Bench) -> Self {
        let mut child = bench.command().arg("serve").stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = said.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, address) = line.strip_prefix("serving on ")?.split_once("://")?;
            Some(address.trim_end_matches('/').to_owned())
        });
        // What is said later must not fill the pipe.
        std::thread::spawn(move || said.map_while(Result::ok).for_each(drop));
        let address = address.expect("it says where it listens");
        Self { child, address }
    }

    pub(crate) fn post(&self, path: &str, headers: &str, body: &Value) -> (u16, Value) {
        let (status, text) = send(&self.address, "POST", path, headers, &body.to_string());
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    pub(crate) fn stop(mut self) {
        let pid = self.child.id().to_string();
        let ended = std::process::Command::new("kill").args(["-TERM", &pid]).status();
        assert!(ended.unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One request on a connection of its own: the status, and the body.
pub(crate) fn send(address: &str, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nConnection: close\r\n{headers}\
         Content-Length: {length}\r\n\r\n"
    );
    connection.write_all((head + body).as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap_or_default().parse().unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_owned())
}

/// What a service was asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

/// A service on this machine that answers as it is told, each connection in a thread of its own.
pub(crate) struct Service {
    pub(crate) address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// A status with more headers, and a body.
pub(crate) type Answer = (&'static str, String);

impl Service {
    pub(crate) fn answering(status: &'static str, body: Value) -> Self {
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        Self::with(move |_| (status, text.clone()))
    }

    pub(crate) fn with(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), answer)
    }

    pub(crate) fn on(listener: TcpListener, answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (kept, answer) = (asked.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let (kept, answer) = (kept.clone(), answer.clone());
                std::thread::spawn(move || {
                    let Some(asked) = read(&connection) else { return };
                    kept.lock().unwrap().push(asked.clone());
                    let (status, body) = answer(&asked);
                    let length = body.len();
                    let text =
                        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
                    // Whoever asked may have gone.
                    let _ = (&connection).write_all(text.as_bytes());
                });
            }
        });
        Self { address, asked }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// What it was asked, once it was asked so often.
    #[track_caller]
    pub(crate) fn until_asked(&self, times: usize) -> Vec<Asked> {
        until("it is not asked", || self.asked().len() >= times);
        self.asked()
    }
}

#[track_caller]
pub(crate) fn until(otherwise: &str, so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "{otherwise}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn read(connection: &TcpStream) -> Option<Asked> {
    let mut lines = BufReader::new(connection);
    let mut line = || {
        let mut text = String::new();
        lines.read_line(&mut text).ok()?;
        Some((text.trim_end().to_owned(), ()))
    };
    let path = line()?.0.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        let (text, ()) = line()?;
        match text.split_once(':') {
            Some((name, value)) => headers.push((name.to_lowercase(), value.trim().to_owned())),
            None => break,
        }
    }
    let length = headers
        .iter()
        .find(|(name, _)| name == "content-length")?
        .1
        .parse()
        .ok()?;
    let mut body = vec![0; length];
    lines.read_exact(&mut body).ok()?;
    Some(Asked {
        path,
        headers,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    })
}
