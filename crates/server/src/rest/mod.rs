//! The REST routes under `/api/v1`: approvals, commands, agents' jobs, runs, the record, policy and numbers, for people and
//! their programs.
//!
//! [`table`] says what there is: method, path, who may, what is taken and what is answered. The router is
//! made of it ([`endpoint`]), and so is the OpenAPI document ([`openapi`]), so they cannot differ. What may
//! be asked is checked against the table before a handler sees it ([`asked`]). Lists are `{items: [], next?}`,
//! refusals `{error: {errorCode, message, details, correlation_id}}`.

mod table;

mod asked;
mod endpoint;
mod failure;
pub(crate) mod stream;

mod approvals;
mod audit;
pub(crate) mod callbacks;
mod commands;
mod events;
mod following;
mod jobs;
mod metrics;
mod policy;
mod runs;
mod sessions;
pub(crate) mod webhooks;

mod openapi;
mod proof;
mod schemas;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, State};
use axum::http::Request;
use axum::response::Response;
use axum::routing::on;
use countersign_gateway::clock::Clock;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::IdSource;
use countersign_gateway::service::{Answer, Cancel, Origin, Service, ToolCall};
use countersign_gateway::session::credential::Credentials;
use countersign_gateway::session::{Caller, Role};
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::limits::{EVENT_STREAMS_MAX, EXPORTS_MAX};
use crate::metrics::{Metrics, Waiting};
use crate::office::Office;
use failure::Failure;
use proof::Proofs;

/// What the routes are made of.
pub(crate) struct Api {
    pub(crate) office: Office,
    pub(crate) service: Arc<dyn Service>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) credentials: Arc<dyn Credentials>,
    pub(crate) ids: IdSource,
    pub(crate) clock: Clock,
    /// How long a session may be idle.
    pub(crate) session_ttl: Duration,
    /// Bytes of one body.
    pub(crate) body_bytes: usize,
    /// Whether services may call back.
    pub(crate) takes_callbacks: bool,
    /// Whether GitHub may deliver.
    pub(crate) takes_webhooks: bool,
    /// True once nothing new is begun.
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) shared: Shared,
}

impl Api {
    /// A call of a tool. A client that goes away does not cancel it.
    async fn call(
        &self,
        caller: &Caller,
        tool: &str,
        arguments: Map<String, Value>,
        answer_within: Option<Duration>,
    ) -> Result<Answer, Refusal> {
        let call = ToolCall {
            tool: tool.to_owned(),
            arguments,
            progress: None,
            user: None,
            cancel: Cancel::never(),
            origin: Origin::default(),
            answer_within,
        };
        let waiting = Waiting::of(&self.metrics, tool);
        let outcome = self.service.call(caller.clone(), call).await;
        waiting.end(&outcome);
        outcome
    }
}

/// What requests share among each other.
pub(crate) struct Shared {
    proofs: Proofs,
    streams: Arc<Semaphore>,
    /// Those of agents, who never take the ones that people follow the record by.
    streams_of_agents: Arc<Semaphore>,
    exports: Arc<Semaphore>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            proofs: Proofs::default(),
            streams: Arc::new(Semaphore::new(EVENT_STREAMS_MAX)),
            streams_of_agents: Arc::new(Semaphore::new(EVENT_STREAMS_MAX)),
            exports: Arc::new(Semaphore::new(EXPORTS_MAX)),
        }
    }
}

impl Shared {
    /// A stream for this caller, if there may be one more.
    fn stream(&self, caller: &Caller) -> Result<OwnedSemaphorePermit, Refusal> {
        let streams = match caller.role {
            Role::Agent => &self.streams_of_agents,
            Role::Operator | Role::Approver | Role::Viewer => &self.streams,
        };
        streams.clone().try_acquire_owned().map_err(|_| {
            let message = "as many streams as there may be are open; try again when one has ended";
            Refusal::new(ErrorCode::QueueFull, message)
        })
    }
}

/// What stands in a path where the table has a name.
type Named = Result<RawPathParams, RawPathParamsRejection>;

pub(crate) fn routes(api: Arc<Api>) -> Router {
    let mut router = Router::new();
    for endpoint in table::all() {
        let serve = move |State(api): State<Arc<Api>>, path: Named, request: Request<axum::body::Body>| async move {
            match path {
                Ok(path) => endpoint.serve(api, &path, request).await,
                Err(_) => Failure::malformed("the address is not UTF-8").answer(&api.ids),
            }
        };
        router = router.route(&endpoint.address(), on(endpoint.method.filter(), serve));
    }
    router.method_not_allowed_fallback(wrong_method).with_state(api)
}

/// What the address does take stands in `Allow`.
async fn wrong_method(State(api): State<Arc<Api>>) -> Response {
    let refusal = Refusal::new(ErrorCode::MethodNotFound, "this address does not take this method");
    Failure::from(refusal).answer(&api.ids)
}
