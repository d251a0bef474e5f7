//! The console: the pages on which a person sees what agents ask and did, and decides.
//!
//! Every page is made here, on the server, from templates that are checked when this is built; scripts only
//! bring news and keys. There is no page without a login but the one that asks for it.

mod access;
mod assets;
mod live;
mod login;
mod page;
mod sent;
mod text;

mod card;
mod decide;
mod origin;
mod patch;
mod queue;
mod standing;

mod activity;
mod chart;
mod event;
mod found;
mod job;
mod jobs;
mod numbers;
mod policy;
mod record;
mod run;
mod runs;
mod sessions;
mod story;
mod time;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use countersign_gateway::clock::Clock;
use countersign_gateway::service::Service;
use countersign_gateway::session::credential::Credentials;
use tokio::sync::{Mutex, Semaphore, watch};

use crate::http::About;
use crate::office::Office;

/// What the pages are made of.
pub(crate) struct Console {
    pub(crate) office: Office,
    /// Takes what people want done, as it takes agents' calls.
    pub(crate) service: Arc<dyn Service>,
    pub(crate) credentials: Arc<dyn Credentials>,
    pub(crate) about: About,
    pub(crate) clock: Clock,
    /// Whether browsers come over TLS, so that the cookie must too.
    pub(crate) is_secure: bool,
    /// True once nothing new is begun.
    pub(crate) stopping: watch::Receiver<bool>,
    /// One for each page that is kept up to date.
    pub(crate) pages: Arc<Semaphore>,
    /// Held by whoever walks the chain.
    pub(crate) walking: Mutex<()>,
}

pub(crate) fn routes(console: Arc<Console>) -> Router {
    Router::new()
        .route("/", get(queue::page))
        .route("/queue", get(queue::cards))
        .route("/approvals/{id}", get(queue::one))
        .route("/approvals/{id}/card", get(queue::card))
        .route("/approvals/{id}/decision", post(decide::decide))
        .route("/approvals/{id}/standing", get(standing::page).post(standing::adopt))
        .route("/activity", get(activity::page))
        .route("/activity/news", get(activity::news))
        .route("/jobs", get(jobs::page))
        .route("/jobs/news", get(jobs::news))
        .route("/jobs/{id}", get(job::page))
        .route("/jobs/{id}/news", get(job::news))
        .route("/jobs/{id}/messages", post(job::send))
        .route("/jobs/{id}/interrupt", post(job::interrupt))
        .route("/calls/{correlation}", get(story::page))
        .route("/runs", get(runs::page))
        .route("/runs/news", get(runs::news))
        .route("/runs/{id}", get(run::page))
        .route("/runs/{id}/news", get(run::news))
        .route("/runs/{id}/cancel", post(run::cancel))
        .route("/record", get(record::page))
        .route("/record/verify", post(record::verify))
        .route("/sessions", get(sessions::page))
        .route("/policy", get(policy::page))
        .route("/numbers", get(numbers::page))
        .route("/login", get(login::page).post(login::enter))
        .route("/logout", post(login::leave))
        .route("/live", get(live::news))
        .route("/assets/{name}", get(assets::asset))
        .with_state(console)
}
