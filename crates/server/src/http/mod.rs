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

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use countersign_gateway::audit::Pending;
use countersign_gateway::clock::Clock;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::IdSource;
use countersign_gateway::service::Service;
use countersign_gateway::session::credential::Credentials;
use countersign_gateway::session::kinship::Kinship;
use countersign_gateway::session::lifetime::Sessions;
use countersign_gateway::session::{Caller, Transport};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::console::{self, Console};
use crate::limits::{
    BODY_BYTES_DEFAULT, CONNECTIONS_MAX, DEPTH_DEFAULT, LASTING_STREAMS_OF_FOUR, LIVE_PAGES_MAX, SESSIONS_DEFAULT,
};
use crate::mcp::host::{Features, Host};
use crate::mcp::methods;
use crate::mcp::revision::Era;
use crate::metrics::Metrics;
use crate::office::{self, Office, Visitor};
use crate::rest;

pub use crate::mcp::host::ConformanceFixtures;
pub use crate::mcp::seal::SealKey;

pub use crate::metrics::Gauges;
pub use crate::rest::callbacks::{APPROVER as APPROVER_CALLBACK, EXECUTOR as EXECUTOR_CALLBACK};
pub use crate::rest::webhooks::{EmptySecret, WebhookSecret, Webhooks};
pub use auth::Anonymous;
pub use callback::{CallbackToken, EmptyToken};
pub use tls::{Tls, TlsError};

pub(crate) use line::Hold;

use auth::Peer;
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
            router: routes(&options, &host, stopping.subscribe()),
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

    /// Who sent this. An agent of a job that leaves its token at home is nobody, not anybody.
    async fn caller(&self, headers: &HeaderMap, peer: &Peer, transport: Transport) -> Result<Caller, Refusal> {
        let options = &self.options;
        let caller = auth::caller(headers, peer, transport, &*options.credentials, options.anonymous)?;
        if !headers.contains_key(header::AUTHORIZATION) && peer.is_an_agent(options.kinship.as_deref()).await {
            let message = "agents of jobs come with the token that they were given; send `COUNTERSIGN_TOKEN` as \
                           `Authorization: Bearer TOKEN`";
            return Err(Refusal::new(ErrorCode::Unauthenticated, message));
        }
        Ok(caller)
    }

    /// Who sent this, if they may come in now.
    async fn admit(&self, headers: &HeaderMap, peer: &Peer, transport: Transport) -> Result<Caller, Box<Response>> {
        let caller = match self.caller(headers, peer, transport).await {
            Ok(caller) => caller,
            Err(refusal) => {
                let address = peer.address.ip();
                self.doorman.refused(&self.host, address, transport, &refusal).await;
                let mut response = refusal::unrecorded(&self.host, StatusCode::UNAUTHORIZED, &refusal);
                let challenge = if headers.contains_key(header::AUTHORIZATION) {
                    "Bearer realm=\"countersign\", error=\"invalid_token\""
                } else {
                    "Bearer realm=\"countersign\""
                };
                let challenge = HeaderValue::from_static(challenge);
                response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
                return Err(Box::new(response));
            }
        };
        match self.paced(&caller, peer, transport).await {
            Ok(()) => Ok(caller),
            Err((refusal, seconds)) => {
                let response = refusal::unrecorded(&self.host, StatusCode::TOO_MANY_REQUESTS, &refusal);
                Err(Box::new(refusal::retry_after(response, seconds)))
            }
        }
    }

    /// Counts a request; refused with the seconds to wait when there were too many.
    async fn paced(&self, caller: &Caller, peer: &Peer, transport: Transport) -> Result<(), (Refusal, u64)> {
        let Some(rates) = &self.rates else {
            return Ok(());
        };
        let taken = rates.take(&caller.credential, tokio::time::Instant::now());
        let Err(wait) = taken else {
            return Ok(());
        };
        let message = "too many requests with this credential; wait as `Retry-After` says";
        let refusal = Refusal::new(ErrorCode::RateLimited, message);
        let address = peer.address.ip();
        self.doorman.refused(&self.host, address, transport, &refusal).await;
        Err((refusal, wait.as_secs_f64().ceil() as u64))
    }
}

impl Server {
    /// Turns away whoever calls back without the token. Without a token there is nothing to call.
    async fn admit_callback(&self, headers: &HeaderMap, peer: &Peer) -> Result<(), Box<Response>> {
        let token = self.options.callbacks.as_ref();
        let Err(refusal) = token.map_or(Ok(()), |token| token.admits(headers)) else {
            return Ok(());
        };
        self.host.metrics.refused(refusal.code);
        self.turned_away(peer, Transport::Rest, &refusal).await;
        let mut response = refusal::answer(StatusCode::UNAUTHORIZED, refusal, &self.host.ids);
        let challenge = HeaderValue::from_static("Bearer realm=\"countersign callbacks\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        Err(Box::new(response))
    }

    /// Who comes to what people use: a browser that is logged in or, to the REST routes, the bearer of a
    /// token. None where nobody said who they are and nobody need.
    async fn visitor<B>(&self, request: &Request<B>, peer: &Peer, transport: Transport) -> Option<Visitor> {
        let (options, headers) = (&self.options, request.headers());
        let visitor = match (office::login(headers), &options.office) {
            (Some(secret), Some(office)) => browser(office, request, secret).await,
            _ if transport == Transport::Console => return None,
            _ if office::of_another_page(request.method(), headers) => Visitor::Unknown(elsewhere()),
            _ => match self.caller(headers, peer, transport).await {
                Ok(caller) => Visitor::Known(caller),
                Err(refusal) => {
                    self.host.metrics.refused(refusal.code);
                    Visitor::Unknown(refusal)
                }
            },
        };
        match &visitor {
            // A login that has run out is nobody's attack.
            Visitor::Unknown(refusal) if refusal.code == ErrorCode::Forbidden || transport == Transport::Rest => {
                self.turned_away(peer, transport, refusal).await;
            }
            Visitor::Unknown(_) | Visitor::Known(_) => {}
        }
        Some(visitor)
    }

    /// Records what was refused at the door.
    async fn turned_away(&self, peer: &Peer, transport: Transport, refusal: &Refusal) {
        let address = peer.address.ip();
        self.doorman.refused(&self.host, address, transport, refusal).await;
    }
}

/// Whose browser this is, if the request is from a page of ours.
async fn browser<B>(office: &Office, request: &Request<B>, secret: &str) -> Visitor {
    if office::forged(request.method(), request.headers()) {
        return Visitor::Unknown(elsewhere());
    }
    match office.logins.who(secret).await {
        Ok(Some(caller)) => Visitor::Known(caller),
        Ok(None) => Visitor::Unknown(Refusal::new(
            ErrorCode::Unauthenticated,
            "this browser is no longer logged in",
        )),
        Err(error) => Visitor::Unknown(Refusal::new(ErrorCode::AuditUnavailable, error.to_string())),
    }
}

fn elsewhere() -> Refusal {
    let message = "requests that change something must come from a page of this very server";
    Refusal::new(ErrorCode::Forbidden, message)
}

/// What the pages know.
struct Site {
    readiness: Arc<dyn Readiness>,
    ids: IdSource,
    capabilities: Value,
    scheme: &'static str,
}

fn routes(options: &HttpOptions, host: &Arc<Host>, stopping: watch::Receiver<bool>) -> Router {
    let site = Arc::new(Site {
        readiness: Arc::clone(&options.readiness),
        ids: options.ids.clone(),
        capabilities: methods::capabilities(host, Era::Modern),
        scheme: if options.tls.is_some() { "https" } else { "http" },
    });
    let pages = Router::new()
        .route("/healthz", get(health))
        .route("/readyz", get(readiness))
        .route("/.well-known/mcp", get(description))
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .with_state(site);
    let Some(office) = &options.office else {
        return pages;
    };
    let api = Arc::new(rest::Api {
        office: office.clone(),
        service: Arc::clone(&options.service),
        credentials: Arc::clone(&options.credentials),
        ids: options.ids.clone(),
        clock: options.clock.clone(),
        session_ttl: options.session_ttl,
        body_bytes: options.limits.body_bytes,
        takes_callbacks: options.callbacks.is_some(),
        takes_webhooks: options.webhooks.is_some(),
        stopping: stopping.clone(),
        shared: rest::Shared::default(),
    });
    let pages = pages.merge(console::routes(Arc::new(Console {
        office: office.clone(),
        service: Arc::clone(&options.service),
        credentials: Arc::clone(&options.credentials),
        about: options.about.clone(),
        clock: options.clock.clone(),
        is_secure: options.tls.is_some(),
        stopping,
        pages: Arc::new(Semaphore::new(LIVE_PAGES_MAX)),
        walking: tokio::sync::Mutex::default(),
    })));
    let pages = match &options.callbacks {
        Some(_) => pages.merge(rest::callbacks::routes(api.clone())),
        None => pages,
    };
    let pages = match &options.webhooks {
        Some(webhooks) => {
            let body_bytes = options.limits.body_bytes;
            pages.merge(rest::webhooks::routes(
                webhooks.clone(),
                options.ids.clone(),
                body_bytes,
            ))
        }
        None => pages,
    };
    pages.merge(rest::routes(api))
}

async fn health() -> Response {
    Json(json!({"status": "ok"})).into_response()
}

async fn readiness(State(site): State<Arc<Site>>) -> Response {
    match site.readiness.check().await {
        Ok(()) => Json(json!({"status": "ready"})).into_response(),
        Err(reason) => {
            let body = Json(json!({"status": "unavailable", "reason": reason}));
            (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
        }
    }
}

async fn nothing_here(State(site): State<Arc<Site>>) -> Response {
    let refusal = Refusal::new(ErrorCode::NotFound, "there is nothing at this address");
    refusal::answer(StatusCode::NOT_FOUND, refusal, &site.ids)
}

async fn wrong_method(State(site): State<Arc<Site>>) -> Response {
    let refusal = Refusal::new(ErrorCode::MethodNotFound, "this address does not take this method");
    refusal::answer(StatusCode::METHOD_NOT_ALLOWED, refusal, &site.ids)
}

async fn description(State(site): State<Arc<Site>>, headers: HeaderMap) -> Response {
    Json(describe::server(site.scheme, &headers, &site.capabilities)).into_response()
}
