//! The least a server on the official Rust SDK can do: say hello, and start `true` with nothing
//! around it. A yardstick for `bench/run`, which reads the port from standard output.

use axum::serve::ListenerExt as _;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::model::{ServerCapabilities, ServerConfig};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ServerHandler, tool, tool_handler, tool_router};
use tokio::net::TcpListener;

#[derive(Clone)]
struct Hello {
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl Hello {
    #[tool(description = "Says hello")]
    fn hello(&self) -> String {
        "hello".to_owned()
    }

    #[tool(description = "Runs `true`")]
    async fn run(&self) -> String {
        match tokio::process::Command::new("true").status().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Hello {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("serving on http://{}/", listener.local_addr()?);
    let hello = || {
        Ok(Hello {
            tool_router: Hello::tool_router(),
        })
    };
    let service = StreamableHttpService::new(
        hello,
        LocalSessionManager::default().into(),
        StreamableHttpServerConfig::default(),
    );
    // Without this an answer waits 40 ms for the client's acknowledgement.
    let listener = listener.tap_io(|connection| {
        let _ = connection.set_nodelay(true);
    });
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await
}
