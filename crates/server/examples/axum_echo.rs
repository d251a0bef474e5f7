//! The least an HTTP server on axum can do with a JSON request: parse it and say it back. A yardstick
//! for `bench/run`, which reads the port from standard output.
#![allow(clippy::print_stdout)]

use axum::routing::post;
use axum::{Json, Router};
use serde_json::Value;
use tokio::net::TcpListener;

fn main() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("serving on http://{}/", listener.local_addr()?);
        let app = Router::new().route("/mcp", post(|Json(said): Json<Value>| async { Json(said) }));
        axum::serve(listener, app).await
    })
}
