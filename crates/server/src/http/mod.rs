//! The HTTP listener: MCP over Streamable HTTP and HTTP+SSE, whether we live and whether we can work, REST
//! and the console.
//!
//! Every request passes `front`: the guard, then its address. What a message means is said in `mcp`;
//! here is who sent it, which session it belongs to, and how the answer travels.

mod front;
mod line;
mod listener;

mod auth;
pub(crate) mod body;
mod callback;
mod door;
mod doorman;
mod guard;
mod headers;
mod rate;
pub(crate) mod refusal;
mod tls;

mod sse;
mod streamable;

mod events;
mod exchange;
mod live;
mod registry;
mod replay;
mod resuming;
mod upkeep;

mod describe;
mod numbers;
mod pages;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use countersign_gateway::audit::Pending;
use countersign_gateway::clock::Clock;
use countersign_gateway::ids::IdSource;
use countersign_gateway::service::Service;
use countersign_gateway::session::credential::Credentials;
use countersign_gateway::session::kinship::Kinship;
use countersign_gateway::session::lifetime::Sessions;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::limits::{BODY_BYTES_DEFAULT, CONNECTIONS_MAX, DEPTH_DEFAULT, LASTING_STREAMS_OF_FOUR, SESSIONS_DEFAULT};
use crate::mcp::host::{Features, Host};
use crate::metrics::Metrics;
use crate::office::Office;

pub use crate::mcp::host::ConformanceFixtures;
pub use crate::mcp::seal::SealKey;

pub use crate::metrics::Gauges;
pub use crate::rest::callbacks::{APPROVER as APPROVER_CALLBACK, EXECUTOR as EXECUTOR_CALLBACK};
pub use crate::rest::webhooks::{EmptySecret, WebhookSecret, Webhooks};
pub use auth::Anonymous;
pub use callback::{CallbackToken, EmptyToken};
pub use tls::{Tls, TlsError};

pub(crate) use line::Hold;

use doorman::Doorman;
use rate::Rates;
use registry::Registry;

/// Port: can this server do its work now?
pub trait Readiness: Send + Sync + 'static {
    /// `Err` says in one sentence what is missing.
    fn check(&self) -> Pending<Result<(), String>>;
}

/// What the page says about this server.
#[derive(Clone, Debug)]
pub struct About {
    pub workspace: String,
    pub policy_mode: String,
    pub state_directory: String,
}

pub struct HttpOptions {
    pub about: About,
    pub readiness: Arc<dyn Readiness>,
    /// How long requests that are being answered may take once `shutdown` has resolved.
    pub shutdown_grace: Duration,
    pub ids: IdSource,
    pub clock: Clock,
    pub service: Arc<dyn Service>,
    pub sessions: Arc<dyn Sessions>,
    pub credentials: Arc<dyn Credentials>,
    pub anonymous: Anonymous,
    /// Who tells agents of jobs from others who come without a token; none where there are no agents.
    pub kinship: Option<Arc<dyn Kinship>>,
    /// How long a session may be idle.
    pub session_ttl: Duration,
    pub limits: HttpLimits,
    pub tls: Option<Tls>,
    pub fixtures: ConformanceFixtures,
    /// What the states of modern clients are signed with.
    pub seal_key: SealKey,
    /// What people use; none serves programs only.
    pub office: Option<Office>,
    /// What services that were asked call back with; none keeps the callback routes off.
    pub callbacks: Option<CallbackToken>,
    /// Who takes what GitHub delivers; none keeps the route off.
    pub webhooks: Option<Webhooks>,
    /// Where the numbers of this moment are kept.
    pub gauges: Arc<Gauges>,
}

/// What the configuration says under `limits`.
#[derive(Clone, Debug)]
pub struct HttpLimits {
    pub body_bytes: usize,
    pub depth: usize,
    /// Of one credential; none is no limit.
    pub requests_per_second: Option<f64>,
    pub burst: Option<u64>,
    pub sessions_max: usize,
    /// Connections at once.
    pub connections_max: usize,
}

impl HttpLimits {
    /// The limits of a server without a configuration.
    pub fn standard() -> Self {
        Self {
            body_bytes: BODY_BYTES_DEFAULT,
            depth: DEPTH_DEFAULT,
            requests_per_second: None,
            burst: None,
            sessions_max: SESSIONS_DEFAULT,
            connections_max: CONNECTIONS_MAX,
        }
    }
}

/// Why serving ended other than by the operator's wish.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("cannot tell the listener's address")]
    Address(#[source] io::Error),
    #[error("cannot accept connections")]
    Accept(#[source] io::Error),
}

/// Serves until `shutdown` resolves. Calls that are short are answered then; every command has ended
/// and is recorded when this returns.
pub async fn serve_http(listener: TcpListener, options: HttpOptions, shutdown: impl Future) -> Result<(), HttpError> {
    let is_loopback = listener.local_addr().map_err(HttpError::Address)?.ip().is_loopback();
    listener::serve(Server::new(options, is_loopback), listener, shutdown).await
}

struct Server {
    options: HttpOptions,
    host: Arc<Host>,
    registry: Arc<Registry>,
    rates: Option<Rates>,
    doorman: Doorman,
    connections: Arc<Semaphore>,
    /// One for each stream that only its client ends.
    lasting: Arc<Semaphore>,
    /// True once nothing new is begun.
    stopping: watch::Sender<bool>,
    router: Router,
    is_loopback: bool,
}

/// How many streams may last. One at least.
fn lasting_max(connections_max: usize) -> usize {
    (connections_max / 4 * LASTING_STREAMS_OF_FOUR).max(1)
}

impl Server {
    fn new(options: HttpOptions, is_loopback: bool) -> Arc<Self> {
        let host = Arc::new(Host {
            service: Arc::clone(&options.service),
            sessions: Arc::clone(&options.sessions),
            clock: options.clock.clone(),
            ids: options.ids.clone(),
            depth_max: options.limits.depth,
            features: Features::new(&options.clock, options.fixtures, options.seal_key.clone()),
            metrics: Arc::new(Metrics::of(&options.gauges)),
        });
        let registry = Arc::new(Registry::new(
            Arc::clone(&host),
            options.session_ttl,
            options.limits.sessions_max,
            Arc::clone(&options.gauges),
        ));
        let rate = options.limits.requests_per_second;
        let stopping = watch::Sender::new(false);
        Arc::new(Self {
            router: pages::routes(&options, &host, stopping.subscribe()),
            rates: rate.map(|rate| Rates::new(rate, options.limits.burst)),
            doorman: Doorman::default(),
            connections: Arc::new(Semaphore::new(options.limits.connections_max)),
            lasting: Arc::new(Semaphore::new(lasting_max(options.limits.connections_max))),
            stopping,
            options,
            host,
            registry,
            is_loopback,
        })
    }
}
