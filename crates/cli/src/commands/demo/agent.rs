//! An agent as a server sees it: a client of MCP over HTTP, with a session. It knows no more than it needs.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const REVISION: &str = "2025-11-25";

pub(super) struct Agent {
    address: SocketAddr,
    session: String,
    next: AtomicI64,
}

/// An answer of the server.
struct Said {
    session: Option<String>,
    body: Value,
}

impl Agent {
    /// Comes in and says hello.
    pub(super) async fn arrive(address: SocketAddr) -> anyhow::Result<Self> {
        let mut agent = Self {
            address,
            session: String::new(),
            next: AtomicI64::new(1),
        };
        let hello = json!({
            "protocolVersion": REVISION, "capabilities": {},
            "clientInfo": {"name": "demo-agent", "version": env!("CARGO_PKG_VERSION")},
        });
        let welcome = agent.request("initialize", hello).await?;
        agent.session = welcome.session.context("the server gave no session")?;
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        agent.post(&ready).await?;
        Ok(agent)
    }

    /// Calls a tool, again and again while its question waits for somebody.
    pub(super) async fn call(&self, tool: &str, arguments: &Value) -> anyhow::Result<Value> {
        loop {
            let params = json!({"name": tool, "arguments": arguments});
            let said = self.request("tools/call", params).await?;
            let result = said.body["result"]["structuredContent"].clone();
            ensure!(result.is_object(), "the server did not answer the call: {}", said.body);
            if result["status"] != "pending" {
                return Ok(result);
            }
        }
    }

    async fn request(&self, method: &str, params: Value) -> anyhow::Result<Said> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.post(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await
    }

    async fn post(&self, message: &Value) -> anyhow::Result<Said> {
        let body = message.to_string();
        let session = match self.session.as_str() {
            "" => String::new(),
            session => format!("Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: {REVISION}\r\n"),
        };
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: application/json\r\n\
             Connection: close\r\n{session}Content-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        let mut connection = TcpStream::connect(self.address)
            .await
            .context("cannot reach the server")?;
        connection.write_all((head + &body).as_bytes()).await?;
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await?;
        read(&String::from_utf8_lossy(&answer))
    }
}

/// An answer with a body of one piece, which is what a client that reads no streams gets.
fn read(answer: &str) -> anyhow::Result<Said> {
    let (head, body) = answer.split_once("\r\n\r\n").context("the server said nothing")?;
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    ensure!(
        status.starts_with("HTTP/1.1 200") || status.starts_with("HTTP/1.1 202"),
        "the server refused the agent: {status}"
    );
    let session = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("mcp-session-id"))
        .map(|(_, value)| value.trim().to_owned());
    let body = match body.trim() {
        "" => Value::Null,
        body => serde_json::from_str(body).context("the server's answer is not JSON")?,
    };
    Ok(Said { session, body })
}
