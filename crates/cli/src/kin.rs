//! Tells agents of jobs, and what they started, from others who come to the server without a token.

use std::net::SocketAddr;
use std::sync::Arc;

use countersign_agents::process::may_be_an_agent;
use countersign_gateway::audit::Pending;
use countersign_gateway::job::keeping::Jobs as _;
use countersign_gateway::session::credential::Credentials;
use countersign_gateway::session::kinship::Kinship;
use countersign_store::Store;

/// Looks at processes only while agents may be at work: while a token of one is in force, or one is on record.
pub(crate) struct Kin {
    pub(crate) record: Arc<Store>,
    pub(crate) credentials: Arc<dyn Credentials>,
}

impl Kinship for Kin {
    fn is_an_agent(&self, there: SocketAddr, here: SocketAddr) -> Pending<bool> {
        let (record, is_given) = (self.record.clone(), self.credentials.any_of_job());
        Box::pin(async move {
            if !is_given && record.processes().await.is_ok_and(|processes| processes.is_empty()) {
                return false;
            }
            // A look at every process is no work for a thread that others wait for.
            let looked = tokio::task::spawn_blocking(move || may_be_an_agent(there, here));
            looked.await.unwrap_or(true)
        })
    }
}
