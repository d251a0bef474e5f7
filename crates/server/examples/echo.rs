//! The smallest server: one tool that says what it was told. The tests run it on real descriptors.

use std::sync::Arc;

use countersign_gateway::audit::Pending;
use countersign_gateway::catalog::definition::{Hints, ToolDefinition};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::{RequestId, SessionId};
use countersign_gateway::service::{Answer, RefusedEnvelope, Service, ToolCall};
use countersign_gateway::session::lifetime::{KeptSession, Session, SessionState, Sessions, Touched};
use countersign_gateway::session::{Caller, Transport};
use countersign_server::stdio::{StdioError, StdioOptions, serve_stdio};
use serde_json::{Value, json};

fn main() -> Result<(), StdioError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StdioError::OpenInput)?;
    runtime.block_on(serve_stdio(
        Arc::new(Echo),
        Arc::new(Echo),
        Caller::anonymous_agent(Transport::Stdio),
        StdioOptions::standard(),
        std::future::pending::<()>(),
    ))
}

struct Echo;

impl Service for Echo {
    fn tools(&self, _caller: &Caller) -> Vec<ToolDefinition> {
        vec![ToolDefinition {
            name: "echo",
            title: "Echo",
            description: "answers with its arguments",
            input_schema: json!({"type": "object"}),
            output_schema: json!({"type": "object"}),
            version: "1.0.0",
            hints: Hints {
                read_only: true,
                destructive: false,
                idempotent: true,
                open_world: false,
            },
        }]
    }

    fn call(&self, _caller: Caller, call: ToolCall) -> Pending<Result<Answer, Refusal>> {
        let structured = Value::Object(call.arguments);
        let text = structured.to_string();
        let is_error = false;
        Box::pin(std::future::ready(Ok(Answer {
            structured,
            text,
            is_error,
            command: None,
        })))
    }

    fn recall(&self, _caller: Caller, command: RequestId) -> Pending<Result<Answer, Refusal>> {
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

/// Sessions that nobody keeps.
impl Sessions for Echo {
    fn open(&self, _session: Session) -> Pending<Result<(), Refusal>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn advance(&self, _session: Session, _from: SessionState) -> Pending<Result<(), Refusal>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn find(&self, _id: &SessionId) -> Pending<Result<Option<KeptSession>, Refusal>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn touch(&self, _touched: Vec<Touched>) -> Pending<Result<(), Refusal>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn expire(&self, _idle_since: Timestamp, _busy: Vec<SessionId>) -> Pending<Result<Vec<SessionId>, Refusal>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}
