//! Acts that services outside perform, in a process that stays: who sends them, and who ends what nobody
//! answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::clock::Clock;
use countersign_gateway::delegation::desk::{DelegationDesk, DeskParts};
use countersign_gateway::ids::IdSource;
use countersign_integrations::courier::HttpCourier;
use countersign_server::http::EXECUTOR_CALLBACK;

use crate::start::{Joined, Started};
use crate::{approvers, control};

/// How often a process that stays looks for acts whose time is over.
const LOOK: Duration = Duration::from_secs(60);

/// Lets the tools of files give their work away. Services call back at the address that we listen on, unless
/// the configuration says where; a process that does not listen leaves that to the server beside it.
pub(crate) fn open(started: &Started, joined: &Joined, listening: Option<SocketAddr>) -> Arc<DelegationDesk> {
    let desk = DelegationDesk::new(DeskParts {
        record: joined.record.clone(),
        delegations: joined.record.clone(),
        board: joined.board.clone(),
        courier: Arc::new(HttpCourier::default()),
        redactor: started.redactor(),
        vault: control::digests(&joined.record),
        clock: Clock::system(),
        ids: IdSource::random(),
        callback_url: format!("{}{EXECUTOR_CALLBACK}", approvers::base(&started.settings, listening)),
        answer_within: started.settings.answer_within,
    });
    joined.gateway.delegate(desk.clone());
    let watched = Arc::downgrade(&desk);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(LOOK).await;
            let Some(desk) = watched.upgrade() else { return };
            if let Err(error) = desk.expire_due().await {
                tracing::warn!(%error, "acts whose time is over could not be ended");
            }
        }
    });
    desk
}
