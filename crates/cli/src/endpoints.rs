//! The way back that a job's agent is given: the address of a server, and a token of its own.
//!
//! The token is an agent's and the job's alone. It is made when the job begins or is taken up, kept as a
//! digest, and revoked when nobody here looks after the job any more; what a process that vanished gave out
//! is revoked by whoever finds it, unless its agent outlived that process and goes on. With the token ends
//! what was begun through it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use countersign_agents::process::runs;
use countersign_gateway::audit::Pending;
use countersign_gateway::audit::event::Actor;
use countersign_gateway::ids::{CredentialId, IdSource, JobId};
use countersign_gateway::job::driver::Endpoint;
use countersign_gateway::job::keeping::Jobs as _;
use countersign_gateway::job::state::Job;
use countersign_gateway::job::supervise::Endpoints;
use countersign_gateway::session::credential::Credential;
use countersign_gateway::spine::Gateway;
use countersign_store::Store;
use countersign_store::sqlite::tokens::{LOOK_EVERY, Made, TokenError};

use crate::whereabouts;

/// Where agents come back to.
#[derive(Clone, Debug)]
pub(crate) enum Door {
    /// This process, at this address of it, such as `127.0.0.1:7420`.
    Here(SocketAddr),
    /// The server of this state directory, while there is one: this process has no door.
    OfServer(PathBuf),
}

impl Door {
    fn url(&self) -> Option<String> {
        let address = match self {
            Self::Here(address) => address.to_string(),
            Self::OfServer(state_dir) => {
                let address = whereabouts::find(state_dir)?;
                let (_, address) = address.split_once("://")?;
                address.to_owned()
            }
        };
        // Also where the server has a certificate: agents do not trust it, and what never leaves this machine
        // needs none.
        Some(format!("http://{address}/mcp"))
    }
}

/// Gives out endpoints, and knows those that this process gave.
pub(crate) struct JobEndpoints {
    door: Door,
    record: Arc<Store>,
    gateway: Arc<Gateway>,
    given: Mutex<HashMap<JobId, CredentialId>>,
}

impl JobEndpoints {
    pub(crate) fn new(door: Door, record: Arc<Store>, gateway: Arc<Gateway>) -> Arc<Self> {
        Arc::new(Self {
            door,
            record,
            gateway,
            given: Mutex::default(),
        })
    }

    fn given(&self) -> std::sync::MutexGuard<'_, HashMap<JobId, CredentialId>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to tokens on a thread that may wait for the disk.
    async fn tokens<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store, &Actor, &IdSource) -> Result<T, TokenError> + Send + 'static,
    ) -> Option<T> {
        let record = self.record.clone();
        let done = tokio::task::spawn_blocking(move || work(&record, &Actor::system("jobs"), &IdSource::random()));
        match done.await {
            Ok(Ok(done)) => Some(done),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the token of a job could not be seen to");
                None
            }
            Err(_) => None,
        }
    }

    /// Whether the agent that holds a token outlived whoever looked after its job, and will be taken up.
    async fn is_outlived(&self, token: &Credential) -> bool {
        let Some(job) = &token.job else { return false };
        let goes_on = matches!(self.record.find(&job.job_id).await, Ok(Some(job)) if !job.has_ended());
        let processes = self.record.processes().await.unwrap_or_default();
        let of_job = processes.into_iter().filter(|process| process.job_id == job.job_id);
        goes_on
            && of_job
                .map(|process| process.mark)
                .any(|mark| mark.socket.is_some() && runs(&mark))
    }

    async fn revoke(&self, credential: CredentialId) {
        let id = credential.clone();
        let revoked = self.tokens(move |record, by, ids| record.revoke_token(id.as_str(), by.clone(), ids));
        // Where it could not be revoked now, the next sweep does.
        if revoked.await.is_some() {
            self.gateway.dismiss(&credential, "the job it was for is over").await;
        }
    }
}

/// The port, over what tasks of the supervisor can hold on to.
pub(crate) struct Shared(pub(crate) Arc<JobEndpoints>);

impl Endpoints for Shared {
    fn open(&self, job: &Job) -> Pending<Option<Endpoint>> {
        let (it, job) = (self.0.clone(), job.clone());
        Box::pin(async move {
            let url = it.door.url()?;
            let wanted = job.clone();
            let made = it.tokens(move |record, by, ids| record.create_job_token(&wanted, by, ids));
            let Made { credential, token } = made.await?;
            it.given().insert(job.id, credential.id);
            if let Door::OfServer(_) = it.door {
                // Until then the server may not have noticed what another process made.
                tokio::time::sleep(LOOK_EVERY).await;
            }
            Some(Endpoint { url, token })
        })
    }

    fn keep(&self, job: &Job) -> Pending<bool> {
        let (it, id) = (self.0.clone(), job.id.clone());
        Box::pin(async move {
            let of_job = move |credential: &Credential| {
                credential.revoked_at.is_none() && credential.job.as_ref().is_some_and(|job| job.job_id == id)
            };
            let found = it.tokens(move |record, _, _| Ok(record.tokens()?.into_iter().find(of_job)));
            let Some(credential) = found.await.flatten() else {
                return false;
            };
            if let Some(job) = &credential.job {
                it.given().insert(job.job_id.clone(), credential.id);
            }
            true
        })
    }

    fn close(&self, job: &JobId) -> Pending<()> {
        let it = self.0.clone();
        let given = it.given().remove(job);
        Box::pin(async move {
            if let Some(credential) = given {
                it.revoke(credential).await;
            }
        })
    }

    fn sweep(&self) -> Pending<()> {
        let it = self.0.clone();
        Box::pin(async move {
            let strays = it.tokens(|record, _, _| record.stray_job_tokens()).await;
            for stray in strays.unwrap_or_default() {
                // A job that just ended here is seen to by whoever followed it.
                let is_ours = it.given().values().any(|given| *given == stray.id);
                if !is_ours && !it.is_outlived(&stray).await {
                    it.revoke(stray.id).await;
                }
            }
        })
    }
}
