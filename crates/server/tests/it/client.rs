//! A client that writes lines and reads answers, on the same runtime as the server.

use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::ids::IdSource;
use countersign_gateway::session::{Caller, Transport};
use countersign_server::stdio::{self, ConformanceFixtures, StdioError, StdioOptions};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines};
use tokio::task::JoinHandle;

use crate::fake::{Fake, Shared};

/// A test that has to wait this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Client {
    pub(crate) fake: Arc<Fake>,
    pub(crate) input: DuplexStream,
    output: Lines<BufReader<DuplexStream>>,
    server: JoinHandle<Result<(), StdioError>>,
}

/// The standard options, with ids that count.
pub(crate) fn options() -> StdioOptions {
    StdioOptions {
        ids: IdSource::counting(),
        flush_patience: Duration::from_millis(200),
        ..StdioOptions::standard()
    }
}

impl Client {
    /// A client that has said nothing yet.
    pub(crate) fn new() -> Self {
        Self::with(options())
    }

    pub(crate) fn with(options: StdioOptions) -> Self {
        let fake = Arc::new(Fake::default());
        let (input, server_input) = tokio::io::duplex(64 << 10);
        let (server_output, output) = tokio::io::duplex(64 << 10);
        let service = Arc::new(Shared(Arc::clone(&fake)));
        let sessions = Arc::clone(&service);
        let caller = Caller::anonymous_agent(Transport::Stdio);
        let never = std::future::pending::<()>();
        let server = tokio::spawn(stdio::serve(
            service,
            sessions,
            caller,
            options,
            server_input,
            server_output,
            never,
        ));
        Self {
            fake,
            input,
            output: BufReader::new(output).lines(),
            server,
        }
    }

    /// A client with a session of this revision.
    pub(crate) async fn of(revision: &str) -> Self {
        let mut client = Self::new();
        client.initialize(revision).await;
        client
    }

    /// A client of a server with the conformance suite's fixtures, with a session that can do this.
    pub(crate) async fn able(revision: &str, capabilities: Value) -> Self {
        let mut client = Self::of_fixtures();
        client.initialize_with(revision, capabilities).await;
        client
    }

    /// A client of a server with the conformance suite's fixtures.
    pub(crate) fn of_fixtures() -> Self {
        Self::with(StdioOptions {
            fixtures: ConformanceFixtures::Served,
            ..options()
        })
    }

    pub(crate) async fn initialize(&mut self, revision: &str) -> Value {
        self.initialize_with(revision, json!({})).await
    }

    pub(crate) async fn initialize_with(&mut self, revision: &str, capabilities: Value) -> Value {
        let params = json!({
            "protocolVersion": revision,
            "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"},
        });
        let answer = self.ask("init", "initialize", params).await;
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        answer
    }

    pub(crate) async fn raw(&mut self, bytes: impl AsRef<[u8]>) {
        self.input.write_all(bytes.as_ref()).await.unwrap();
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.raw(format!("{message}\n")).await;
    }

    pub(crate) async fn request(&mut self, id: impl Into<Value>, method: &str, params: Value) {
        let id = id.into();
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
    }

    pub(crate) async fn call(&mut self, id: impl Into<Value>, tool: &str, arguments: Value) {
        self.request(id, "tools/call", json!({"name": tool, "arguments": arguments}))
            .await;
    }

    /// The next message.
    pub(crate) async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(PATIENCE, self.output.next_line()).await;
        let line = line.expect("an answer in time").unwrap().expect("no end of output");
        serde_json::from_str(&line).expect("every line is JSON")
    }

    pub(crate) async fn ask(&mut self, id: impl Into<Value>, method: &str, params: Value) -> Value {
        self.request(id, method, params).await;
        self.next().await
    }

    /// Nothing is on its way: a ping's answer comes next.
    pub(crate) async fn expect_silence(&mut self) {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        // A few turns of the runtime, so that whatever was going to be said is said first.
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let id = format!("silence-{number}");
        let answer = self.ask(id.as_str(), "ping", json!({})).await;
        assert_eq!(answer, json!({"jsonrpc": "2.0", "id": id, "result": {}}));
    }

    /// Closes the input and returns what the server still said.
    pub(crate) async fn end(self) -> Vec<Value> {
        let Self {
            input,
            mut output,
            server,
            ..
        } = self;
        drop(input);
        let mut rest = Vec::new();
        while let Some(line) = output.next_line().await.unwrap() {
            rest.push(serde_json::from_str(&line).expect("every line is JSON"));
        }
        let ended = tokio::time::timeout(PATIENCE, server).await;
        ended
            .expect("the server ends in time")
            .expect("no panic")
            .expect("a clean end");
        rest
    }

    /// Closes the output and keeps the input.
    pub(crate) fn stop_reading_for_ever(self) -> (DuplexStream, JoinHandle<Result<(), StdioError>>, Arc<Fake>) {
        drop(self.output);
        (self.input, self.server, self.fake)
    }

    /// Turns of the runtime until something is true.
    pub(crate) async fn until(condition: impl Fn() -> bool) {
        tokio::time::timeout(PATIENCE, async {
            while !condition() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("it happens in time");
    }
}

/// Parameters of a modern request by a client that can do this.
pub(crate) fn modern_with(mut params: Value, capabilities: Value) -> Value {
    let version = "io.modelcontextprotocol/protocolVersion";
    let declared = "io.modelcontextprotocol/clientCapabilities";
    if params["_meta"].is_null() {
        params["_meta"] = json!({});
    }
    params["_meta"][version] = "2026-07-28".into();
    params["_meta"][declared] = capabilities;
    params
}

/// The code and `data.errorCode` of an error.
pub(crate) fn error_of(answer: &Value) -> (i64, &str) {
    let error = &answer["error"];
    let data = &error["data"];
    assert!(
        data["details"].is_object() && data["retryable"].is_boolean() && data["correlation_id"].is_string(),
        "{answer}"
    );
    (
        error["code"].as_i64().expect("a code"),
        data["errorCode"].as_str().expect("an error code"),
    )
}
