//! The door: who comes, by which credential, and whether they may come in now. Who is turned away is recorded.

use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use axum::response::Response;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::session::{Caller, Transport};

use super::auth::{self, Peer};
use super::{Server, refusal};
use crate::office::{self, Office, Visitor};

impl Server {
    /// Who sent this. An agent of a job that leaves its token at home is nobody, not anybody.
    pub(super) async fn caller(
        &self,
        headers: &HeaderMap,
        peer: &Peer,
        transport: Transport,
    ) -> Result<Caller, Refusal> {
        let options = &self.options;
        let caller = auth::caller(headers, peer, transport, &*options.credentials, options.anonymous)?;
        if !headers.contains_key(header::AUTHORIZATION) && peer.is_an_agent(options.kinship.as_deref()).await {
            let message = "agents of jobs come with the token that they were given; send `COUNTERSIGN_TOKEN` in \
                           `Authorization`, behind the word `Bearer`";
            return Err(Refusal::new(ErrorCode::Unauthenticated, message));
        }
        Ok(caller)
    }

    /// Who sent this, if they may come in now.
    pub(super) async fn admit(
        &self,
        headers: &HeaderMap,
        peer: &Peer,
        transport: Transport,
    ) -> Result<Caller, Box<Response>> {
        let caller = match self.caller(headers, peer, transport).await {
            Ok(caller) => caller,
            Err(refusal) => {
                self.turned_away(peer, transport, &refusal).await;
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
    pub(super) async fn paced(&self, caller: &Caller, peer: &Peer, transport: Transport) -> Result<(), (Refusal, u64)> {
        let Some(rates) = &self.rates else {
            return Ok(());
        };
        let taken = rates.take(&caller.credential, tokio::time::Instant::now());
        let Err(wait) = taken else {
            return Ok(());
        };
        let message = "too many requests with this credential; wait as `Retry-After` says";
        let refusal = Refusal::new(ErrorCode::RateLimited, message);
        self.turned_away(peer, transport, &refusal).await;
        Err((refusal, wait.as_secs_f64().ceil() as u64))
    }

    /// Turns away whoever calls back without the token. Without a token there is nothing to call.
    pub(super) async fn admit_callback(&self, headers: &HeaderMap, peer: &Peer) -> Result<(), Box<Response>> {
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
    pub(super) async fn visitor<B>(&self, request: &Request<B>, peer: &Peer, transport: Transport) -> Option<Visitor> {
        let (options, headers) = (&self.options, request.headers());
        let visitor = match &options.office {
            Some(office) if office::is_of_browser(headers) => browser(office, request).await,
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
    pub(super) async fn turned_away(&self, peer: &Peer, transport: Transport, refusal: &Refusal) {
        let address = peer.address.ip();
        self.doorman.refused(&self.host, address, transport, refusal).await;
    }
}

/// Whose browser this is, if the request is from a page of ours.
async fn browser<B>(office: &Office, request: &Request<B>) -> Visitor {
    if office::forged(request.method(), request.headers()) {
        return Visitor::Unknown(elsewhere());
    }
    match office::logged_in(&*office.logins, request.headers()).await {
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
