//! Agent jobs in a process that stays: the tools that start them, and who looks after them.
//!
//! A server leaves its jobs to the next one. A process that serves a client over standard streams may be the
//! last of its state directory for days: what it looks after ends with it, unless a server is there to go on.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::approval::board::Board;
use countersign_gateway::audit::event::Actor;
use countersign_gateway::audit::redact::Redactor;
use countersign_gateway::clock::Clock;
use countersign_gateway::ids::{CredentialId, IdSource};
use countersign_gateway::job::desk::{DeskParts, JobDesk};
use countersign_gateway::job::supervise::{Supervisor, SupervisorParts, SupervisorSettings};
use countersign_gateway::limits;
use countersign_gateway::session::{Caller, Role, Transport};
use countersign_gateway::tools::jobs::JobTools;
use countersign_store::Store;
use countersign_store::session_files::SessionFiles;

use crate::agents::{Around, Installed};
use crate::config::Settings;
use crate::start::{self, Joined, Started};
use crate::whereabouts;

/// Time between two looks whether the last job has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Where this process looks after jobs; nowhere, where there are no agents.
pub(crate) struct Workshop(Option<Open>);

struct Open {
    desk: Arc<JobDesk>,
    supervisor: Arc<Supervisor>,
}

impl Workshop {
    /// Brings the tools and begins to look after jobs, also those that another process left. Without agents
    /// there are no tools: none is listed that could not work.
    pub(crate) fn open(started: &Started, joined: &Joined, homes: &Path) -> Self {
        let Some(agents) = installed(started, homes) else {
            return Self(None);
        };
        let (record, redactor) = (&joined.record, started.redactor());
        let desk = desk(&started.settings, record, &joined.board, &redactor);
        joined
            .gateway
            .equip(vec![JobTools::new(desk.clone(), agents.offered())]);
        let supervisor = Supervisor::new(SupervisorParts {
            jobs: record.clone(),
            record: record.clone(),
            files: Arc::new(SessionFiles::below(&started.settings.state_dir)),
            board: joined.board.clone(),
            agents: Arc::new(agents),
            judge: joined.gateway.clone(),
            redactor,
            clock: Clock::system(),
            ids: IdSource::random(),
            settings: SupervisorSettings {
                processes_max: processes_max(&started.settings),
                idle_max: limits::JOB_IDLE_MAX,
            },
        });
        tokio::spawn(supervisor.clone().run());
        Self(Some(Open { desk, supervisor }))
    }

    /// Takes no more jobs; those at work are found by the next server.
    pub(crate) fn close(&self) {
        if let Some(open) = &self.0 {
            open.supervisor.close();
        }
    }

    /// Takes no more jobs, and leaves none behind that nobody looks after.
    pub(crate) async fn leave(&self, settings: &Settings) {
        let Some(open) = &self.0 else { return };
        open.supervisor.close();
        if whereabouts::find(&settings.state_dir).is_some() {
            return;
        }
        let caller = itself();
        for job in open.supervisor.held() {
            // It may have ended at this moment.
            if let Err(refusal) = open.desk.interrupt(&caller, &job).await {
                tracing::debug!(reason = refusal.message, "a job was not interrupted");
            }
        }
        let ended = async {
            while !open.supervisor.held().is_empty() {
                tokio::time::sleep(LOOK).await;
            }
        };
        if tokio::time::timeout(settings.shutdown_grace, ended).await.is_err() {
            start::say("countersign: an agent did not end in time; the next server ends it");
        }
    }
}

/// Where people and tools bring work.
pub(crate) fn desk(settings: &Settings, record: &Arc<Store>, board: &Arc<Board>, redactor: &Redactor) -> Arc<JobDesk> {
    JobDesk::new(DeskParts {
        jobs: record.clone(),
        record: record.clone(),
        files: Arc::new(SessionFiles::below(&settings.state_dir)),
        board: board.clone(),
        redactor: redactor.clone(),
        clock: Clock::system(),
        ids: IdSource::random(),
    })
}

/// The agents, where there are any that can be started.
pub(crate) fn installed(started: &Started, homes: &Path) -> Option<Installed> {
    let around = Around {
        home: started.surroundings.home.as_deref(),
        homes,
    };
    match Installed::find(&started.settings, &around) {
        Ok(agents) => Some(agents).filter(|agents| !agents.is_empty()),
        Err(error) => {
            start::say(&format!("warning: {error:#}"));
            None
        }
    }
}

fn processes_max(settings: &Settings) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    settings.processes_max.unwrap_or_else(cores)
}

/// This process, which calls back what it cannot look after any longer.
fn itself() -> Caller {
    Caller {
        credential: CredentialId::trusted("countersign"),
        role: Role::Operator,
        actor: Actor::system("shutdown"),
        transport: Transport::Stdio,
        run: None,
    }
}
