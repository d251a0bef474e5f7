//! A server on a loopback port, and an HTTP client that hides nothing.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::audit::Pending;
use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::ids::IdSource;
use countersign_server::http::{
    About, Anonymous, ConformanceFixtures, Gauges, HttpError, HttpLimits, HttpOptions, Readiness, SealKey, serve_http,
};
use countersign_server::limits::{PROBE_EVERY, SESSION_TTL_DEFAULT};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::fake::{Fake, Shared};

/// Long enough for any machine; only a lost answer takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const BOTH: &str = "application/json, text/event-stream";

struct Ready;

impl Readiness for Ready {
    fn check(&self) -> Pending<Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

pub(crate) fn options(fake: &Arc<Fake>) -> HttpOptions {
    let port = Arc::new(Shared(Arc::clone(fake)));
    HttpOptions {
        about: About {
            workspace: "any".to_owned(),
            policy_mode: "untrusted".to_owned(),
            state_directory: "/state".to_owned(),
        },
        readiness: Arc::new(Ready),
        shutdown_grace: Duration::from_millis(400),
        ids: IdSource::counting(),
        clock: Clock::fixed(Timestamp::from_millis(1_000_000)),
        service: port.clone(),
        sessions: port.clone(),
        credentials: port,
        anonymous: Anonymous::AgentsOnLoopback,
        kinship: None,
        session_ttl: SESSION_TTL_DEFAULT,
        limits: HttpLimits::standard(),
        tls: None,
        gauges: Arc::new(Gauges::default()),
        office: None,
        callbacks: None,
        webhooks: None,
        fixtures: ConformanceFixtures::Absent,
        seal_key: SealKey::new([7; 32]),
    }
}

pub(crate) struct Web {
    pub(crate) address: SocketAddr,
    pub(crate) fake: Arc<Fake>,
    pub(crate) clock: Clock,
    pub(crate) gauges: Arc<Gauges>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), HttpError>>,
}

impl Web {
    pub(crate) async fn start() -> Self {
        let fake = Arc::new(Fake::default());
        let options = options(&fake);
        Self::with(fake, options).await
    }

    pub(crate) async fn with(fake: Arc<Fake>, options: HttpOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let clock = options.clock.clone();
        let gauges = options.gauges.clone();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve_http(listener, options, stopped));
        Self {
            address,
            fake,
            clock,
            gauges,
            stop,
            task,
        }
    }

    /// Stops the server as a signal would.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        let ended = tokio::time::timeout(PATIENCE, self.task).await;
        ended.expect("in time").expect("no panic").expect("a clean end");
    }

    pub(crate) async fn connect(&self) -> Client<TcpStream> {
        Client::new(TcpStream::connect(self.address).await.unwrap())
    }

    /// One request on a connection of its own.
    pub(crate) async fn ask(&self, request: Ask) -> Reply {
        let mut client = self.connect().await;
        client.ask(request).await
    }

    /// Begins a session; gives its id.
    pub(crate) async fn initialize(&self, revision: &str) -> String {
        self.initialize_as(revision, None).await
    }

    pub(crate) async fn initialize_as(&self, revision: &str, token: Option<&str>) -> String {
        let mut ask = Ask::post(handshake(revision));
        if let Some(token) = token {
            ask = ask.header("Authorization", &format!("Bearer {token}"));
        }
        let reply = self.ask(ask).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.headers["mcp-session-id"].clone()
    }
}

/// Waits for something that will become true.
pub(crate) async fn until(so: impl Fn() -> bool) {
    let all = async {
        while !so() {
            tokio::task::yield_now().await;
        }
    };
    // The system's clock: that of the runtime may stand still or jump.
    let start = std::time::Instant::now();
    let mut all = std::pin::pin!(all);
    std::future::poll_fn(|context| {
        assert!(start.elapsed() < PATIENCE, "it never became true");
        all.as_mut().poll(context)
    })
    .await;
}

/// Waits for something that takes time, also where time passes only while nobody works.
pub(crate) async fn in_time(so: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !so() {
        assert!(start.elapsed() < PATIENCE, "it never became true");
        tokio::time::sleep(PROBE_EVERY / 4).await;
    }
}

/// Bytes of memory this process holds.
pub(crate) fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

pub(crate) fn handshake(revision: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    }})
}

pub(crate) fn call(id: impl Into<Value>, tool: &str, arguments: Value) -> Value {
    let id = id.into();
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
}

/// A request on its way to becoming bytes.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

impl Ask {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            headers: vec![("Host".to_owned(), "localhost".to_owned())],
            body: None,
        }
    }

    /// A message for `/mcp`.
    pub(crate) fn post(message: Value) -> Self {
        Self::new("POST", "/mcp").header("Accept", BOTH).json(message)
    }

    /// A modern request with the headers that belong to it.
    pub(crate) fn modern(mut message: Value) -> Self {
        message["params"]["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let method = message["method"].as_str().unwrap().to_owned();
        let name = message["params"]["name"].as_str().map(str::to_owned);
        let mut ask = Self::post(message)
            .header("MCP-Protocol-Version", "2026-07-28")
            .header("Mcp-Method", &method);
        if let Some(name) = name {
            ask = ask.header("Mcp-Name", &name);
        }
        ask
    }

    pub(crate) fn json(self, message: Value) -> Self {
        self.header("Content-Type", "application/json").raw(message.to_string())
    }

    pub(crate) fn raw(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Sets a header; an empty value takes it away.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        if !value.is_empty() {
            self.headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Sends a header once more.
    pub(crate) fn again(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn session(self, id: &str) -> Self {
        self.header("Mcp-Session-Id", id)
    }

    pub(crate) fn token(self, token: &str) -> Self {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            bytes += &format!("{name}: {value}\r\n");
        }
        if let Some(body) = &self.body {
            bytes += &format!("Content-Length: {}\r\n", body.len());
        }
        let mut bytes = (bytes + "\r\n").into_bytes();
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        bytes
    }
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

impl Reply {
    /// The body, or the data of its last event.
    pub(crate) fn json(&self) -> Value {
        let text = match self.is_stream() {
            true => self.events().pop().unwrap_or_default().data,
            false => self.body.clone(),
        };
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.headers
            .get("content-type")
            .is_some_and(|kind| kind == "text/event-stream")
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.body.split("\n\n").filter_map(Event::read).collect()
    }

    /// Code and name of the JSON-RPC error.
    pub(crate) fn error(&self) -> (i64, String) {
        let json = self.json();
        let error = &json["error"];
        let code = error["code"].as_i64().unwrap_or_else(|| panic!("no error: {json}"));
        (code, error["data"]["errorCode"].as_str().unwrap().to_owned())
    }
}

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Event {
    pub(crate) kind: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) retry: Option<u64>,
    pub(crate) data: String,
}

impl Event {
    fn read(block: &str) -> Option<Self> {
        let mut event = Self::default();
        let mut any = false;
        for line in block.lines().filter(|line| !line.is_empty() && !line.starts_with(':')) {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
            any = true;
            match name {
                "event" => event.kind = Some(value),
                "id" => event.id = Some(value),
                "retry" => event.retry = Some(value.parse().unwrap()),
                "data" => event.data += &value,
                other => panic!("a field `{other}`"),
            }
        }
        any.then_some(event)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// One connection.
pub(crate) struct Client<S> {
    pub(crate) stream: S,
    /// Read and not used yet.
    ahead: Vec<u8>,
    /// Text of a stream that is not a whole event yet.
    text: String,
    /// Comments in the stream.
    pub(crate) signs_of_life: usize,
}

/// Status and headers, before the body.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            ahead: Vec::new(),
            text: String::new(),
            signs_of_life: 0,
        }
    }

    pub(crate) async fn ask(&mut self, request: Ask) -> Reply {
        self.send(&request).await;
        tokio::time::timeout(PATIENCE, self.reply())
            .await
            .unwrap_or_else(|_| panic!("no answer to {request:?}"))
    }

    pub(crate) async fn send(&mut self, request: &Ask) {
        self.stream.write_all(&request.bytes()).await.unwrap();
    }

    pub(crate) async fn reply(&mut self) -> Reply {
        let Head { status, headers } = self.head().await;
        let mut body = Vec::new();
        if let Some(length) = headers.get("content-length") {
            let length: usize = length.parse().unwrap();
            while self.ahead.len() < length {
                assert!(self.fill().await, "the body ended early");
            }
            body = self.ahead.drain(..length).collect();
        } else if headers.contains_key("transfer-encoding") {
            while let Some(mut chunk) = self.chunk().await {
                body.append(&mut chunk);
            }
        }
        let body = String::from_utf8(body).unwrap();
        Reply { status, headers, body }
    }

    pub(crate) async fn head(&mut self) -> Head {
        let end = loop {
            if let Some(end) = self.ahead.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end;
            }
            assert!(self.fill().await, "no head: {:?}", String::from_utf8_lossy(&self.ahead));
        };
        let head: Vec<u8> = self.ahead.drain(..end + 4).collect();
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
        Head {
            status,
            headers: headers.collect(),
        }
    }

    /// The next event of a stream; none at its end. Signs of life are passed over.
    pub(crate) async fn event(&mut self) -> Option<Event> {
        let next = async {
            loop {
                while let Some(end) = self.text.find("\n\n") {
                    let block: String = self.text.drain(..end + 2).collect();
                    if let Some(event) = Event::read(&block) {
                        return Some(event);
                    }
                    self.signs_of_life += 1;
                }
                let chunk = self.chunk().await?;
                self.text += &String::from_utf8(chunk).unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, next)
            .await
            .expect("an event, or the end")
    }

    async fn chunk(&mut self) -> Option<Vec<u8>> {
        let end = loop {
            if let Some(end) = self.ahead.windows(2).position(|bytes| bytes == b"\r\n") {
                break end;
            }
            if !self.fill().await {
                return None;
            }
        };
        let size: Vec<u8> = self.ahead.drain(..end + 2).collect();
        let size = usize::from_str_radix(std::str::from_utf8(&size).unwrap().trim(), 16).unwrap();
        while self.ahead.len() < size + 2 {
            if !self.fill().await {
                return None;
            }
        }
        let mut chunk: Vec<u8> = self.ahead.drain(..size + 2).collect();
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }

    async fn fill(&mut self) -> bool {
        self.stream.read_buf(&mut self.ahead).await.is_ok_and(|read| read > 0)
    }
}
