//! Any bytes on standard input: serving them must come to an end without a panic, every line of the output
//! must be a message, and no request may be answered more often than it was made.
#![no_main]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::audit::Pending;
use countersign_gateway::catalog::definition::ToolDefinition;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::RequestId;
use countersign_gateway::service::{Answer, RefusedEnvelope, Room, Service, ToolCall};
use countersign_gateway::session::lifetime::Unkept;
use countersign_gateway::session::{Caller, Transport};
use countersign_server::stdio::{ConformanceFixtures, StdioOptions, serve};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Beyond this the server hangs. Time is the runtime's own, so nothing is really waited for.
const PATIENCE: Duration = Duration::from_secs(3_600);

struct Fake;

impl Service for Fake {
    fn tools(&self, _caller: &Caller) -> Arc<[ToolDefinition]> {
        Arc::new([])
    }

    fn policy(&self, _caller: &Caller) -> Value {
        Value::Null
    }

    fn call(&self, _caller: Caller, mut call: ToolCall) -> Pending<Result<Answer, Refusal>> {
        Box::pin(async move {
            match call.tool.as_str() {
                "echo" => {
                    if let Some(progress) = &call.progress {
                        progress.report("here");
                    }
                    let structured = Value::Object(call.arguments);
                    Ok(Answer {
                        text: structured.to_string(),
                        structured,
                        is_error: false,
                        command: None,
                        is_repeat: false,
                        room: Room::default(),
                    })
                }
                "wait" => {
                    call.cancel.cancelled().await;
                    Err(Refusal::new(ErrorCode::Cancelled, "cancelled"))
                }
                "long" => Ok(Answer {
                    text: String::new(),
                    structured: json!({"status": "running"}),
                    is_error: false,
                    command: Some(RequestId::trusted("long")),
                    is_repeat: false,
                    room: Room::default(),
                }),
                _ => Err(Refusal::new(ErrorCode::UnknownTool, "there is no such tool")),
            }
        })
    }

    fn recall(
        &self,
        _caller: Caller,
        _command: RequestId,
        _tool: Option<String>,
        _patience: Duration,
    ) -> Pending<Result<Answer, Refusal>> {
        Box::pin(std::future::ready(Err(Refusal::new(
            ErrorCode::NotFound,
            "nothing is kept",
        ))))
    }

    fn refused(&self, _envelope: RefusedEnvelope) -> Pending<()> {
        Box::pin(std::future::ready(()))
    }

    fn shutdown(&self) -> Pending<()> {
        Box::pin(std::future::ready(()))
    }
}

/// Counts messages with an id, by that id.
fn count(counts: &mut HashMap<String, usize>, message: &Value, counted: &impl Fn(&Value) -> bool) {
    match message {
        Value::Array(members) => members.iter().for_each(|member| count(counts, member, counted)),
        Value::Object(fields) if counted(message) => {
            if let Some(id) = fields.get("id").filter(|id| !id.is_null()) {
                *counts.entry(id.to_string()).or_default() += 1;
            }
        }
        _ => {}
    }
}

fuzz_target!(|input: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let output = runtime.block_on(async {
        let (mut to_server, from_client) = tokio::io::duplex(1 << 16);
        let (to_client, mut from_server) = tokio::io::duplex(1 << 16);
        let options = StdioOptions {
            fixtures: ConformanceFixtures::Served,
            ..StdioOptions::standard()
        };
        let caller = Caller::anonymous_agent(Transport::Stdio);
        let never = std::future::pending::<()>();
        let (service, sessions) = (Arc::new(Fake), Arc::new(Unkept));
        let serving = serve(service, sessions, caller, options, from_client, to_client, never);
        let writing = async {
            let _ = to_server.write_all(input).await;
            drop(to_server);
        };
        let mut output = Vec::new();
        let reading = from_server.read_to_end(&mut output);
        let all = async { tokio::join!(serving, writing, reading) };
        let (served, (), read) = tokio::time::timeout(PATIENCE, all).await.expect("no hang");
        served.expect("a clean end");
        read.expect("memory can be read");
        output
    });
    let (mut made, mut answered) = (HashMap::new(), HashMap::new());
    for line in input.split(|byte| *byte == b'\n') {
        if let Ok(message) = serde_json::from_slice(line) {
            // Whatever has an id may be refused under it.
            count(&mut made, &message, &|_| true);
        }
    }
    for line in output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let message: Value = serde_json::from_slice(line).expect("every line is a message");
        count(&mut answered, &message, &|message| message.get("method").is_none());
    }
    for (id, times) in answered {
        assert!(
            made.get(&id).is_some_and(|made| times <= *made),
            "{id} was answered {times} times"
        );
    }
});
