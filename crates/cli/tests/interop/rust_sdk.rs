//! The Rust SDK as a client, in both eras.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ProgressNotificationParam, ProtocolVersion,
    ReadResourceRequestParams, ServerResult,
};
use rmcp::service::{NotificationContext, PeerRequestOptions, RequestHandle, RunningService};
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, RoleClient};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::server::{Listening, bench};

const PATIENCE: Duration = Duration::from_secs(30);

/// A client that notices when the command to be cancelled has begun. This SDK asks for progress always.
#[derive(Clone, Default)]
struct Watching(Arc<Notify>);

impl ClientHandler for Watching {
    async fn on_progress(&self, progress: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        if progress.message.as_deref() == Some("begun\n") {
            self.0.notify_one();
        }
    }
}

type Client = RunningService<RoleClient, Watching>;

fn modern() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    }
}

async fn begin(client: &Client, tool: &str, arguments: Value) -> RequestHandle<RoleClient> {
    let Value::Object(arguments) = arguments else {
        panic!("arguments are an object");
    };
    let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let options = PeerRequestOptions::no_options();
    client.send_cancellable_request(request, options).await.unwrap()
}

async fn call(client: &Client, tool: &str, arguments: Value) -> CallToolResult {
    let handle = begin(client, tool, arguments).await;
    match handle.await_response().await.unwrap() {
        ServerResult::CallToolResult(result) => result,
        other => panic!("not a tool's result: {other:?}"),
    }
}

/// Uses everything once.
async fn look<T, E, A>(transport: T, lifecycle: ClientLifecycleMode)
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let watching = Watching::default();
    let begun = Arc::clone(&watching.0);
    let client = watching.serve_with_lifecycle(transport, lifecycle).await.unwrap();

    let tools = client.list_all_tools().await.unwrap();
    assert!(tools.iter().any(|tool| tool.name == "execute_process"), "{tools:?}");
    let table = ReadResourceRequestParams::new("countersign://errors");
    let table = client.read_resource(table).await.unwrap();
    assert!(format!("{table:?}").contains("COMMAND_NOT_ALLOWED"), "{table:?}");

    let echo = call(&client, "execute_process", json!({"file": "echo", "args": ["hi"]})).await;
    assert_eq!(echo.structured_content.unwrap()["stdout"], "hi\n");
    let refused = call(&client, "execute_process", json!({"file": "id", "args": []})).await;
    assert_eq!(refused.is_error, Some(true));
    assert_eq!(refused.structured_content.unwrap()["error_code"], "COMMAND_NOT_ALLOWED");

    let long = json!({"file": "sh", "args": ["-c", "echo begun; sleep 60"], "request_id": "cancelled"});
    let handle = begin(&client, "execute_process", long).await;
    begun.notified().await;
    handle.cancel(Some("test".to_owned())).await.unwrap();
    let status = json!({"request_id": "cancelled", "wait_ms": 10_000});
    let ended = call(&client, "command_status", status)
        .await
        .structured_content
        .unwrap();
    assert_eq!(ended["error_code"], "CANCELLED", "{ended}");
    client.cancel().await.unwrap();
}

fn in_time(look: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let done = runtime.block_on(async { tokio::time::timeout(PATIENCE, look).await });
    done.expect("the client is done in time");
}

fn on_stdio(lifecycle: ClientLifecycleMode) {
    let bench = bench();
    in_time(async {
        let mut server = tokio::process::Command::from(bench.command())
            .arg("stdio")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let streams = (server.stdout.take().unwrap(), server.stdin.take().unwrap());
        look(streams, lifecycle).await;
        assert!(server.wait().await.unwrap().success());
    });
}

fn over_streamable_http(lifecycle: ClientLifecycleMode) {
    let bench = bench();
    let server = Listening::start(&bench, &[]);
    in_time(async {
        let transport = StreamableHttpClientTransport::from_uri(server.url("/mcp"));
        look(transport, lifecycle).await;
    });
    server.stop();
}

#[test]
fn the_rust_sdk_works_on_stdio() {
    on_stdio(ClientLifecycleMode::Initialize);
    on_stdio(modern());
}

#[test]
fn the_rust_sdk_works_over_streamable_http() {
    over_streamable_http(ClientLifecycleMode::Initialize);
    over_streamable_http(modern());
}
