//! The smallest server: one tool that says what it was told. The tests run it on real descriptors.

use std::sync::Arc;

use countersign_gateway::audit::Pending;
use countersign_gateway::catalog::definition::{Hints, ToolDefinition};
use countersign_gateway::error::Refusal;
use countersign_gateway::service::{Answer, Service, ToolCall};
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
        })))
    }

    fn shutdown(&self) -> Pending<()> {
        Box::pin(std::future::ready(()))
    }
}
