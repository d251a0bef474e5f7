//! `/metrics`: open on loopback; elsewhere for whoever holds a token that is not an agent's. A credential
//! that is shown counts everywhere: a wrong one is refused, not taken for none.

use axum::http::{Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use countersign_gateway::approval::ApprovalFilter;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::session::{Role, Transport};
use hyper::body::Incoming;

use crate::metrics::Standing;
use crate::office::Office;

use super::auth::Peer;
use super::{Server, refusal};

pub(super) async fn page(server: &Server, peer: &Peer, request: &Request<Incoming>) -> Response {
    if request.method() != Method::GET {
        let refusal = Refusal::new(ErrorCode::MethodNotFound, "this address does not take this method");
        let response = refusal::answer(StatusCode::METHOD_NOT_ALLOWED, refusal, &server.host.ids);
        return ([(header::ALLOW, "GET")], response).into_response();
    }
    if !server.is_loopback || request.headers().contains_key(header::AUTHORIZATION) {
        match server.admit(request.headers(), peer, Transport::StreamableHttp).await {
            Ok(caller) if server.is_loopback || caller.role != Role::Agent => {}
            Ok(_) => {
                let refusal = Refusal::new(ErrorCode::Forbidden, "an agent's token does not read the metrics");
                return refusal::answer(StatusCode::FORBIDDEN, refusal, &server.host.ids);
            }
            Err(refused) => return *refused,
        }
    }
    let metrics = &server.host.metrics;
    match server.host.sessions.count().await {
        Ok(counts) => counts
            .into_iter()
            .for_each(|(state, count)| metrics.sessions(state, count)),
        Err(refusal) => tracing::warn!(reason = refusal.message, "sessions could not be counted"),
    }
    metrics.standing.set_verdicts(server.host.service.verdicts());
    metrics
        .standing
        .set_sandbox_renewals(server.host.service.sandbox_renewals());
    if let Some(office) = &server.options.office {
        stand(&metrics.standing, office).await;
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], metrics.render()).into_response()
}

/// What waits, and how jobs stand, at this moment. What cannot be read keeps its last number.
async fn stand(standing: &Standing, office: &Office) {
    match office.board.list(ApprovalFilter::open()).await {
        Ok(open) => standing.set_approvals_waiting(open.len()),
        Err(error) => tracing::warn!(%error, "questions could not be counted"),
    }
    match office.jobs.counts().await {
        Ok(counts) => standing.set_jobs(&counts),
        Err(refusal) => tracing::warn!(reason = refusal.message, "jobs could not be counted"),
    }
    standing.set_restarts(office.job_news.restarts());
}
