//! MCP on standard input and output: one message a line, and nothing else on standard output.
//!
//! Everything runs on the caller's runtime, best a current-thread one: reading, dispatching and
//! writing then never leave the thread. A client that does not read its answers is not read from
//! either, so what is pending stays bounded.

mod descriptor;
mod lines;
mod outbox;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::clock::Clock;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::IdSource;
use countersign_gateway::service::Service;
use countersign_gateway::session::Caller;
use countersign_gateway::session::lifetime::Sessions;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use crate::limits::{DEPTH_DEFAULT, FLUSH_PATIENCE, LINE_BYTES_DEFAULT, OUTBOX_BYTES_MAX};
use crate::mcp::changes::Change;
use crate::mcp::connection::Connection;
pub use crate::mcp::host::ConformanceFixtures;
use crate::mcp::host::{Features, Host, Link};
use crate::mcp::jsonrpc::Malformed;
use crate::mcp::outlet::{Outlet, Reply};
pub use crate::mcp::seal::SealKey;
use lines::{Line, Lines};
use outbox::Outbox;

/// What the configuration says about this transport.
#[derive(Clone, Debug)]
pub struct StdioOptions {
    pub line_bytes_max: usize,
    pub depth_max: usize,
    /// How long the last answers may take to leave once the client is gone or the server stops.
    pub flush_patience: Duration,
    pub ids: IdSource,
    pub clock: Clock,
    pub fixtures: ConformanceFixtures,
    /// What the states of modern clients are signed with.
    pub seal_key: SealKey,
}

impl StdioOptions {
    /// The limits of a server without a configuration.
    pub fn standard() -> Self {
        Self {
            line_bytes_max: LINE_BYTES_DEFAULT,
            depth_max: DEPTH_DEFAULT,
            flush_patience: FLUSH_PATIENCE,
            ids: IdSource::random(),
            clock: Clock::system(),
            fixtures: ConformanceFixtures::Absent,
            seal_key: SealKey::of_this_process(),
        }
    }
}

/// Why serving ended other than by the client's or the operator's wish.
#[derive(Debug, thiserror::Error)]
pub enum StdioError {
    #[error("cannot use standard input")]
    OpenInput(#[source] io::Error),
    #[error("cannot use standard output")]
    OpenOutput(#[source] io::Error),
    #[error("cannot read standard input")]
    Read(#[source] io::Error),
    #[error("cannot write standard output")]
    Write(#[source] io::Error),
}

/// Serves this process's standard input and output until the input ends or `shutdown` resolves.
/// Every command has ended and is recorded when this returns.
pub async fn serve_stdio(
    service: Arc<dyn Service>,
    sessions: Arc<dyn Sessions>,
    caller: Caller,
    options: StdioOptions,
    shutdown: impl Future,
) -> Result<(), StdioError> {
    let input = descriptor::input().map_err(StdioError::OpenInput)?;
    let output = descriptor::output().map_err(StdioError::OpenOutput)?;
    serve(service, sessions, caller, options, input, output, shutdown).await
}

/// Serves any pair of streams the same way.
pub async fn serve<R, W>(
    service: Arc<dyn Service>,
    sessions: Arc<dyn Sessions>,
    caller: Caller,
    options: StdioOptions,
    input: R,
    output: W,
    shutdown: impl Future,
) -> Result<(), StdioError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let outbox = Arc::new(Outbox::new(OUTBOX_BYTES_MAX));
    let host = Arc::new(Host {
        service: Arc::clone(&service),
        sessions,
        clock: options.clock.clone(),
        ids: options.ids.clone(),
        depth_max: options.depth_max,
        features: Features::new(&options.clock, options.fixtures, options.seal_key.clone()),
        metrics: Arc::default(),
    });
    let link = Link::Stdio(options.ids.session());
    let connection = Connection::new(&host, caller, link);
    let standing: Arc<dyn Outlet> = Arc::clone(&outbox) as Arc<dyn Outlet>;
    connection.stand_on(&standing);
    // Kept until the last answer has left: one socket may be both input and output, and letting go of
    // the input makes it blocking again.
    let mut lines = Lines::new(input, options.line_bytes_max);
    let mut writer = tokio::spawn(outbox::write_all(Arc::clone(&outbox), output));

    let mut written = None;
    let ended = tokio::select! {
        ended = read_all(&mut lines, &connection, &outbox, &options) => ended,
        // The client closed our output: there is nobody left to work for.
        result = &mut writer => {
            written = Some(result);
            Ok(())
        }
        () = tell_of_tools(&service, &host, &connection) => Ok(()),
        () = tell_of_jobs(&service, &connection) => Ok(()),
        _ = shutdown => Ok(()),
    };

    connection.cancel_all();
    service.shutdown().await;
    if written.is_none() {
        // What was cancelled still gets its answer, as far as someone reads it.
        let flush = async {
            connection.settled().await;
            outbox.close();
            (&mut writer).await
        };
        written = timeout(options.flush_patience, flush).await.ok();
    }
    connection.close_session().await;
    match written {
        Some(Ok(Err(error))) if !is_disconnect(&error) => return Err(StdioError::Write(error)),
        Some(_) => {}
        None => writer.abort(),
    }
    ended
}

/// Says when the list of tools may be another one, for as long as the connection stands.
async fn tell_of_tools(service: &Arc<dyn Service>, host: &Host, connection: &Connection) {
    let mut changes = service.tool_changes();
    while changes.changed().await.is_ok() {
        host.features.changes.announce(Change::Tools);
        connection.tell_of_tools();
    }
    std::future::pending().await
}

/// Says what happens to the jobs of this client, for as long as the connection stands.
async fn tell_of_jobs(service: &Arc<dyn Service>, connection: &Connection) {
    if let Some(mut news) = service.job_news() {
        while let Some(told) = news.next().await {
            connection.tell_of_job(&told);
        }
    }
    std::future::pending().await
}

async fn read_all<R: AsyncRead + Unpin>(
    lines: &mut Lines<R>,
    connection: &Connection,
    outbox: &Arc<Outbox>,
    options: &StdioOptions,
) -> Result<(), StdioError> {
    let outlet: Arc<dyn Outlet> = Arc::clone(outbox) as Arc<dyn Outlet>;
    loop {
        match lines.next().await.map_err(StdioError::Read)? {
            Some(Line::Whole(line)) => {
                if !line.trim_ascii().is_empty() {
                    connection.receive(line, &outlet);
                }
            }
            Some(Line::TooLong) => {
                let max = options.line_bytes_max;
                let message = format!("a line has at most {max} bytes; this one was skipped");
                let refusal = Refusal::new(ErrorCode::InvalidRequest, message).with("line_bytes_max", max);
                connection.refuse_frame(Malformed::new(None, refusal), Reply::to(&outlet));
            }
            None => return Ok(()),
        }
        outbox.has_room().await;
    }
}

/// Whether an error only says that the client has gone.
fn is_disconnect(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted
    )
}
