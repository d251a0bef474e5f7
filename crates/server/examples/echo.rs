//! The smallest server: one tool that says what it was told. The tests run it on real descriptors; with
//! the argument `http` it listens on a port of loopback and prints which, and with `fixtures` beside it serves
//! what the conformance suite calls by name.
#![allow(clippy::print_stdout)]

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use countersign_gateway::audit::Pending;
use countersign_gateway::catalog::definition::{Hints, ToolDefinition};
use countersign_gateway::clock::Clock;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::{CredentialId, IdSource, RequestId};
use countersign_gateway::service::{Answer, RefusedEnvelope, Room, Service, ToolCall};
use countersign_gateway::session::credential::{Credential, Credentials};
use countersign_gateway::session::lifetime::Unkept;
use countersign_gateway::session::{Caller, Transport};
use countersign_server::http::{
    About, Anonymous, ConformanceFixtures, HttpLimits, HttpOptions, Readiness, SealKey, serve_http,
};
use countersign_server::limits::SESSION_TTL_DEFAULT;
use countersign_server::stdio::{StdioOptions, serve_stdio};
use serde_json::{Value, json};
use tokio::net::TcpListener;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match std::env::args().nth(1).as_deref() {
        Some("http") => runtime.block_on(over_http())?,
        _ => runtime.block_on(serve_stdio(
            Arc::new(Echo),
            Arc::new(Unkept),
            Caller::anonymous_agent(Transport::Stdio),
            StdioOptions::standard(),
            std::future::pending::<()>(),
        ))?,
    }
    Ok(())
}

async fn over_http() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("serving on http://{}/", listener.local_addr()?);
    let options = HttpOptions {
        about: About {
            workspace: "none".to_owned(),
            policy_mode: "none".to_owned(),
            state_directory: "none".to_owned(),
        },
        readiness: Arc::new(Echo),
        shutdown_grace: Duration::from_secs(1),
        ids: IdSource::random(),
        clock: Clock::system(),
        service: Arc::new(Echo),
        sessions: Arc::new(Unkept),
        credentials: Arc::new(Echo),
        anonymous: Anonymous::AgentsOnLoopback,
        kinship: None,
        session_ttl: SESSION_TTL_DEFAULT,
        limits: HttpLimits::standard(),
        tls: None,
        gauges: Arc::default(),
        office: None,
        callbacks: None,
        webhooks: None,
        seal_key: SealKey::of_this_process(),
        fixtures: match std::env::args().nth(2).as_deref() {
            Some("fixtures") => ConformanceFixtures::Served,
            _ => ConformanceFixtures::Absent,
        },
    };
    serve_http(listener, options, std::future::pending::<()>()).await?;
    Ok(())
}

struct Echo;

impl Service for Echo {
    fn tools(&self, _caller: &Caller) -> Arc<[ToolDefinition]> {
        static TOOLS: OnceLock<Arc<[ToolDefinition]>> = OnceLock::new();
        let tools = || {
            Arc::from([ToolDefinition {
                name: "echo".into(),
                title: "Echo".into(),
                description: "answers with its arguments".into(),
                input_schema: json!({"type": "object"}),
                output_schema: json!({"type": "object"}),
                version: "1.0.0".into(),
                hints: Hints {
                    read_only: true,
                    destructive: false,
                    idempotent: true,
                    open_world: false,
                },
            }])
        };
        Arc::clone(TOOLS.get_or_init(tools))
    }

    fn policy(&self, _caller: &Caller) -> Value {
        Value::Null
    }

    fn call(&self, _caller: Caller, call: ToolCall) -> Pending<Result<Answer, Refusal>> {
        if call.tool != "echo" {
            let refusal = Refusal::new(ErrorCode::UnknownTool, format!("there is no tool `{}`", call.tool));
            return Box::pin(std::future::ready(Err(refusal)));
        }
        let structured = Value::Object(call.arguments);
        let text = structured.to_string();
        let is_error = false;
        Box::pin(std::future::ready(Ok(Answer {
            structured,
            text,
            is_error,
            command: None,
            is_repeat: false,
            room: Room::default(),
        })))
    }

    fn recall(
        &self,
        _caller: Caller,
        command: RequestId,
        _tool: Option<String>,
        _patience: Duration,
    ) -> Pending<Result<Answer, Refusal>> {
        let refusal = Refusal::new(ErrorCode::NotFound, format!("nothing is kept, not even `{command}`"));
        Box::pin(std::future::ready(Err(refusal)))
    }

    fn refused(&self, _envelope: RefusedEnvelope) -> Pending<()> {
        Box::pin(std::future::ready(()))
    }

    fn shutdown(&self) -> Pending<()> {
        Box::pin(std::future::ready(()))
    }
}

/// Nobody has a token.
impl Credentials for Echo {
    fn authenticate(&self, _token: &str) -> Option<Credential> {
        None
    }

    fn is_in_force(&self, _id: &CredentialId) -> bool {
        false
    }

    fn any_of_job(&self) -> bool {
        false
    }
}

impl Readiness for Echo {
    fn check(&self) -> Pending<Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
