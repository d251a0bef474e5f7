//! A server that people and their programs talk to, and a client that holds every answer against the
//! server's own document.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::Bench;

/// A test that has to wait this long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Office {
    child: Child,
    address: String,
    document: Value,
    tokens: Vec<(String, String)>,
    stderr: Option<JoinHandle<String>>,
}

/// Who asks: a role with a token of its own, a token, or nobody in particular.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who<'a> {
    Role(&'a str),
    Token(&'a str),
    Nobody,
}

pub(crate) const ROLES: [&str; 4] = ["agent", "operator", "approver", "viewer"];

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let named = |line: &'_ str| line.to_ascii_lowercase().starts_with(&format!("{name}: "));
        self.head
            .lines()
            .find(|line| named(line))
            .map(|line| line[name.len() + 2..].trim())
    }

    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert!((200..300).contains(&self.status), "{} {}", self.status, self.json());
        self.json()
    }

    #[track_caller]
    pub(crate) fn refused(&self, status: u16, code: &str) -> Value {
        let answer = self.json();
        assert_eq!(
            (self.status, &answer["error"]["errorCode"]),
            (status, &json!(code)),
            "{answer}"
        );
        answer
    }
}

impl Office {
    /// A server with a token for each role.
    pub(crate) fn open(bench: &Bench) -> Self {
        let tokens = ROLES.map(|role| (role.to_owned(), token(bench, role, role)));
        Self::open_again(bench, tokens.to_vec())
    }

    /// A server that comes after another one, with that one's tokens.
    pub(crate) fn open_again(bench: &Bench, tokens: Vec<(String, String)>) -> Self {
        let mut child = bench
            .command()
            .args(["serve", "--listen", "127.0.0.1:0"])
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
        let address = address.recv_timeout(PATIENCE).expect("the server listens");
        let mut office = Self {
            child,
            address,
            document: Value::Null,
            tokens,
            stderr: Some(stderr),
        };
        office.document = office
            .exchange(Who::Role("viewer"), "GET", "/api/v1/openapi.json", "", None)
            .ok();
        office
    }

    pub(crate) fn document(&self) -> &Value {
        &self.document
    }

    /// The roles and their tokens.
    pub(crate) fn tokens(&self) -> Vec<(String, String)> {
        self.tokens.clone()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn token(&self, role: &str) -> &str {
        let found = self.tokens.iter().find(|(name, _)| name == role);
        &found.expect("a role with a token").1
    }

    #[track_caller]
    pub(crate) fn get(&self, who: Who<'_>, path: &str) -> Reply {
        self.ask(who, "GET", path, "", None)
    }

    #[track_caller]
    pub(crate) fn post(&self, who: Who<'_>, path: &str, body: Value) -> Reply {
        self.ask(who, "POST", path, "", Some(&body.to_string()))
    }

    /// One request under `/api/v1`, whose answer must be one that the document knows.
    #[track_caller]
    pub(crate) fn ask(&self, who: Who<'_>, method: &str, path: &str, headers: &str, body: Option<&str>) -> Reply {
        let reply = self.exchange(who, method, &format!("/api/v1{path}"), headers, body);
        self.keeps_its_word(method, path, &reply);
        reply
    }

    /// Opens a connection and sends a request; what comes back is the caller's to read.
    pub(crate) fn send(&self, who: Who<'_>, method: &str, path: &str, headers: &str, body: Option<&str>) -> TcpStream {
        let mut connection = TcpStream::connect(&self.address).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        let bearer = match who {
            Who::Role(role) => format!("Authorization: Bearer {}\r\n", self.token(role)),
            Who::Token(token) => format!("Authorization: Bearer {token}\r\n"),
            Who::Nobody => String::new(),
        };
        let content = match body {
            Some(body) => format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()),
            None => String::new(),
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{bearer}{headers}{content}\r\n{}",
            self.address,
            body.unwrap_or_default()
        );
        connection.write_all(head.as_bytes()).unwrap();
        connection
    }

    fn exchange(&self, who: Who<'_>, method: &str, path: &str, headers: &str, body: Option<&str>) -> Reply {
        let mut connection = self.send(who, method, path, headers, body);
        let mut whole = Vec::new();
        connection.read_to_end(&mut whole).unwrap();
        let end = whole.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(whole[..end].to_vec()).unwrap();
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|word| word.parse().ok())
            .expect("a status");
        let rest = whole.split_off(end + 4);
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        let body = if chunked { unchunked(&rest) } else { rest };
        Reply { status, head, body }
    }

    /// The schema that the document has for an answer must hold.
    #[track_caller]
    fn keeps_its_word(&self, method: &str, path: &str, reply: &Reply) {
        assert!(
            reply
                .header("cache-control")
                .is_some_and(|value| value.contains("no-store"))
        );
        let path = path.split('?').next().unwrap();
        let Some(operation) = self.operation(method, path) else {
            assert!(matches!(reply.status, 404 | 405), "{method} {path}: {}", reply.status);
            return;
        };
        let answers = &operation["responses"];
        let answer = match &answers[reply.status.to_string()] {
            Value::Null => &answers["default"],
            found => found,
        };
        let schema = &answer["content"]["application/json"]["schema"];
        if schema.is_null() || reply.body.is_empty() {
            return;
        }
        let mut schema = schema.clone();
        schema["components"] = self.document["components"].clone();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let json = reply.json();
        let problems: Vec<_> = validator.iter_errors(&json).map(|error| error.to_string()).collect();
        assert!(problems.is_empty(), "{method} {path}: {problems:?}\n{json:#}");
    }

    fn operation(&self, method: &str, path: &str) -> Option<&Value> {
        let paths = self.document["paths"].as_object()?;
        let fits = |template: &str| {
            let known: Vec<&str> = template.strip_prefix("/api/v1").unwrap().split('/').collect();
            let asked: Vec<&str> = path.split('/').collect();
            let same = |(known, asked): (&&str, &&str)| known == asked || known.starts_with('{');
            known.len() == asked.len() && known.iter().zip(&asked).all(same)
        };
        // What is written out goes before what is filled in.
        let mut found: Vec<_> = paths.iter().filter(|(template, _)| fits(template)).collect();
        found.sort_by_key(|(template, _)| template.contains('{'));
        let method = match method {
            "HEAD" => "get".to_owned(),
            method => method.to_ascii_lowercase(),
        };
        found.first()?.1.get(&method)
    }

    /// Stops it as an operator would; a panic on the way is a failure.
    /// Gives all that it said.
    pub(crate) fn close(mut self) -> String {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let status = self.child.wait().unwrap();
        let said = self.stderr.take().unwrap().join().unwrap();
        assert!(status.success() && !said.contains("panicked"), "{status}: {said}");
        said
    }

    /// Ends it the hard way; gives all that it said.
    pub(crate) fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.stderr.take().unwrap().join().unwrap()
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes a token; gives its secret.
pub(crate) fn token(bench: &Bench, role: &str, name: &str) -> String {
    let made = bench
        .command()
        .args(["tokens", "create", "--role", role, "--name", name, "--json"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    made["token"].as_str().unwrap().to_owned()
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = bytes.windows(2).position(|two| two == b"\r\n").expect("a length");
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[end + 4 + size..];
    }
}

/// Events of a stream, as they come.
pub(crate) struct Events(BufReader<TcpStream>);

impl Events {
    pub(crate) fn follow(office: &Office, who: Who<'_>, query: &str, headers: &str) -> Self {
        Self::of(office.send(who, "GET", &format!("/api/v1/events{query}"), headers, None))
    }

    /// The events of a job.
    pub(crate) fn of_job(office: &Office, who: Who<'_>, job: &str, headers: &str) -> Self {
        let path = format!("/api/v1/jobs/{job}/events");
        let headers = format!("Accept: text/event-stream\r\n{headers}");
        Self::of(office.send(who, "GET", &path, &headers, None))
    }

    fn of(stream: TcpStream) -> Self {
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
        }
        assert!(
            head.starts_with("HTTP/1.1 200 ") && head.contains("text/event-stream"),
            "{head}"
        );
        let mut events = Self(reader);
        let opening = events.frame().expect("where it stands");
        assert!(opening.contains("retry: "), "{opening}");
        events
    }

    /// The next event, with its id; none when the stream has ended.
    pub(crate) fn next(&mut self) -> Option<(u64, Value)> {
        loop {
            let frame = self.frame()?;
            let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name));
            if let Some(data) = field("data: ") {
                let id = field("id: ").expect("an id").parse().unwrap();
                return Some((id, serde_json::from_str(data).unwrap()));
            }
        }
    }

    /// The next event of a kind.
    pub(crate) fn until(&mut self, kind: &str) -> (u64, Value) {
        loop {
            let (id, event) = self.next().expect("the stream goes on");
            if event["event_type"] == kind {
                return (id, event);
            }
        }
    }

    /// Text up to an empty line, chunk sizes left out.
    fn frame(&mut self) -> Option<String> {
        let mut frame = String::new();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            if line.ends_with("\r\n") {
                continue;
            }
            if line == "\n" {
                return Some(frame);
            }
            frame.push_str(&line);
        }
    }
}

/// Until something is so.
pub(crate) fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(std::time::Instant::now() < deadline, "it does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}
