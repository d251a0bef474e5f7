//! Sends the orders of declared tools to the services that carry them out.
//!
//! Nothing is sent twice: a service may do what it is told each time. What an answer means is judged by
//! whoever gave the order.

use std::sync::Arc;

use countersign_gateway::audit::Pending;
use countersign_gateway::delegation::{Courier, Order, Reply, SendTrouble};
use hyper::Method;

use crate::http::{Dialer, Endpoint, Header, SendError};

#[derive(Default)]
pub struct HttpCourier {
    dialer: Arc<Dialer>,
}

impl Courier for HttpCourier {
    fn send(&self, order: Order) -> Pending<Result<Reply, SendTrouble>> {
        let dialer = self.dialer.clone();
        Box::pin(async move {
            let unfit = |error: &dyn std::fmt::Display| SendTrouble::Unfit(error.to_string());
            let endpoint = Endpoint::parse(&order.url).map_err(|error| unfit(&format_args!("its address {error}")))?;
            let method = Method::from_bytes(order.method.as_bytes()).map_err(|error| unfit(&error))?;
            let headers: Result<Vec<Header>, _> = order
                .headers
                .iter()
                .map(|(name, value)| Header::new(name, value))
                .collect();
            let headers = headers.map_err(|error| unfit(&error))?;
            let body = order.body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
            let sent = dialer.send(method, &endpoint, &headers, body, order.patience).await;
            match sent {
                Ok(reply) => Ok(Reply {
                    status: reply.status.as_u16(),
                    body: reply.body.map(|body| body.to_vec()),
                }),
                Err(SendError::Unreachable(reason)) => Err(SendTrouble::Unreachable(reason)),
                Err(SendError::Lost(reason)) => Err(SendTrouble::Lost(reason)),
            }
        })
    }
}
