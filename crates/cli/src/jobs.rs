//! Agent jobs in a process that stays: the tools that start them, and who looks after them.
//!
//! A server leaves its jobs to the next one. A process that serves a client over standard streams may be the
//! last of its state directory for days: what it looks after ends with it, unless a server is there to go on.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use countersign_gateway::approval::board::Board;
use countersign_gateway::audit::event::Actor;
use countersign_gateway::audit::redact::Redactor;
use countersign_gateway::clock::Clock;
use countersign_gateway::ids::{CredentialId, IdSource};
use countersign_gateway::job::desk::{DeskParts, JobDesk};
use countersign_gateway::job::news::JobNews;
use countersign_gateway::job::supervise::{Endpoints as _, Supervisor, SupervisorParts, SupervisorSettings};
use countersign_gateway::limits;
use countersign_gateway::run::desk::RunDesk;
use countersign_gateway::session::{Caller, Role, Transport};
use countersign_gateway::spine::Gateway;
use countersign_gateway::tools::acts::Toolbox;
use countersign_gateway::tools::feedback::FeedbackTool;
use countersign_gateway::tools::jobs::JobTools;
use countersign_gateway::tools::prompt::PromptTools;
use countersign_gateway::tools::runs::RunTools;
use countersign_store::Store;
use countersign_store::session_files::SessionFiles;

use crate::agents::{AgentsInForce, Around, Grants, Installed};
use crate::config::Settings;
use crate::control;
use crate::endpoints::{Door, JobEndpoints, Shared};
use crate::start::{self, Joined, Started};
use crate::{runs, whereabouts, wiring};

/// Time between two looks whether the last job has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Where people and tools bring work, and where this process looks after it, once there are agents.
pub(crate) struct Workshop {
    pub(crate) desk: Arc<JobDesk>,
    pub(crate) news: Arc<JobNews>,
    pub(crate) runs: Arc<RunDesk>,
    /// Those that can be started here; none in a process that starts none.
    pub(crate) agents: Option<Arc<AgentsInForce>>,
    supervisor: Option<Arc<Supervisor>>,
}

impl Workshop {
    /// Where nothing new is begun; what was done before can be looked at.
    pub(crate) fn without_agents(started: &Started, joined: &Joined) -> Self {
        let redactor = started.redactor();
        Self {
            desk: desk(&started.settings, &joined.record, &joined.board, &redactor),
            news: JobNews::new(joined.record.clone(), joined.board.clone(), Clock::system()),
            runs: runs::desk(&joined.record, &joined.board, &redactor),
            agents: None,
            supervisor: None,
        }
    }

    /// Brings the tools and begins to look after jobs, also those that another process left. Without agents
    /// there are none of their tools: none is listed that could not work. Tokens of jobs whose process is gone
    /// are revoked first, before anybody could come with one.
    pub(crate) async fn open(
        started: &Started,
        joined: &Joined,
        homes: &Path,
        door: Door,
        more: Vec<Arc<dyn Toolbox>>,
    ) -> Self {
        let Self { desk, news, runs, .. } = Self::without_agents(started, joined);
        let (record, redactor) = (&joined.record, started.redactor());
        let endpoints = Shared(JobEndpoints::new(door, record.clone(), joined.gateway.clone()));
        endpoints.sweep().await;
        let mut boxes: Vec<Arc<dyn Toolbox>> = vec![
            prompt(started),
            RunTools::new(runs.clone(), record.clone()),
            FeedbackTool::new(),
        ];
        boxes.extend(more);
        boxes.extend(control::toolboxes(started, record));
        control::repair(&boxes);
        let agents = AgentsInForce::new(found(started, homes), grants(started, record));
        let tools = JobTools::new(desk.clone(), agents.offered());
        boxes.push(tools.clone());
        joined.gateway.equip(boxes);
        let supervisor = Supervisor::new(SupervisorParts {
            jobs: record.clone(),
            record: record.clone(),
            files: Arc::new(SessionFiles::below(&started.settings.state_dir)),
            board: joined.board.clone(),
            agents: agents.clone(),
            endpoints: Arc::new(endpoints),
            judge: joined.gateway.clone(),
            redactor,
            digests: wiring::digest_key(record),
            clock: Clock::system(),
            ids: IdSource::random(),
            settings: SupervisorSettings {
                processes_max: processes_max(&started.settings),
                idle_max: limits::JOB_IDLE_MAX,
            },
        });
        let work = Work {
            agents: agents.clone(),
            tools,
            gateway: joined.gateway.clone(),
            supervisor: supervisor.clone(),
            news: news.clone(),
            homes: homes.to_owned(),
            has_begun: AtomicBool::new(false),
        };
        work.begin();
        joined.reload.then(move |started| work.take_over(started));
        Self {
            desk,
            news,
            runs,
            agents: Some(agents),
            supervisor: Some(supervisor),
        }
    }

    /// Takes no more jobs. Those at work are found by the next server, or handed on where other nodes are there to
    /// take them.
    pub(crate) fn close(&self, record: &Store) {
        self.desk.stop_waiting();
        match &self.supervisor {
            Some(supervisor) if record.is_shared() => supervisor.hand_on(),
            Some(supervisor) => supervisor.close(),
            None => {}
        }
    }

    /// Waits until what is handed on is out of our hands.
    pub(crate) async fn handed_on(&self, record: &Store, grace: Duration) {
        let Some(supervisor) = self.supervisor.as_ref().filter(|_| record.is_shared()) else {
            return;
        };
        if tokio::time::timeout(grace, free(supervisor)).await.is_err() {
            start::say("countersign: an agent did not end in time; this node's next server ends it");
        }
    }

    /// Lets go of the agents whose jobs are over, if that takes no longer than this.
    pub(crate) async fn settle(&self, patience: Duration) {
        if let Some(supervisor) = &self.supervisor
            && tokio::time::timeout(patience, supervisor.settled()).await.is_err()
        {
            tracing::warn!("an agent whose job has ended was still ending; the next server looks after it");
        }
    }

    /// Takes no more jobs, and leaves none behind that nobody looks after.
    pub(crate) async fn leave(&self, settings: &Settings) {
        let Some(supervisor) = &self.supervisor else {
            return;
        };
        supervisor.close();
        if whereabouts::find(&settings.state_dir).is_some() {
            return;
        }
        let caller = itself();
        for job in supervisor.held() {
            // It may have ended at this moment.
            if let Err(refusal) = self.desk.interrupt(&caller, &job).await {
                tracing::debug!(reason = refusal.message, "a job was not interrupted");
            }
        }
        if tokio::time::timeout(settings.shutdown_grace, free(supervisor))
            .await
            .is_err()
        {
            start::say("countersign: an agent did not end in time; the next server ends it");
        }
    }
}

/// The work on jobs in this process, under a configuration that may be another tomorrow.
struct Work {
    agents: Arc<AgentsInForce>,
    tools: Arc<JobTools>,
    gateway: Arc<Gateway>,
    supervisor: Arc<Supervisor>,
    news: Arc<JobNews>,
    homes: PathBuf,
    has_begun: AtomicBool,
}

impl Work {
    /// Looks after jobs from the moment on that there is an agent to do them.
    fn begin(&self) {
        if self.agents.offered().names.is_empty() || self.has_begun.swap(true, Ordering::Relaxed) {
            return;
        }
        tokio::spawn(self.news.clone().run(self.supervisor.news()));
        self.gateway.tell_of_jobs(self.news.clone());
        tokio::spawn(self.supervisor.clone().run());
    }

    /// The agents of another configuration are those of the jobs that begin from now on. Where they cannot be
    /// started, those before stay.
    fn take_over(&self, started: &Started) {
        let around = around(started, &self.homes);
        let before = self.agents.offered();
        match Installed::find(&started.settings, &around) {
            Ok(installed) => self.agents.replace(installed),
            Err(error) => return start::say(&format!("warning: the agents stay as they were: {error:#}")),
        }
        let offered = self.agents.offered();
        if offered != before {
            self.tools.offer(offered);
            self.gateway.offers_changed();
        }
        self.begin();
    }
}

/// Resolves when nothing is looked after here any more.
async fn free(supervisor: &Supervisor) {
    while !supervisor.held().is_empty() {
        tokio::time::sleep(LOOK).await;
    }
}

/// What answers for the tools that agents have of their own.
pub(crate) fn prompt(started: &Started) -> Arc<dyn Toolbox> {
    PromptTools::new(started.redactor(), Path::exists)
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
    Some(found(started, homes)).filter(|agents| !agents.is_empty())
}

/// The agents that can be started, if only none.
fn found(started: &Started, homes: &Path) -> Installed {
    Installed::find(&started.settings, &around(started, homes)).unwrap_or_else(|error| {
        start::say(&format!("warning: {error:#}"));
        Installed::none()
    })
}

fn around<'a>(started: &'a Started, homes: &'a Path) -> Around<'a> {
    Around {
        home: started.surroundings.home.as_deref(),
        homes,
    }
}

/// What the configuration gives to the agents of runs. A secret that cannot be read is not given.
fn grants(started: &Started, record: &Arc<Store>) -> Grants {
    let settings = &started.settings;
    let token = settings.secret("github.agent_token");
    let git_token = token.and_then(|secret| match secret.read(&started.surroundings) {
        Ok(token) => Some(token),
        Err(error) => {
            start::say(&format!("warning: agents in runs get no GitHub token: {error:#}"));
            None
        }
    });
    let kubeconfig = settings.held("kubernetes.agent_kubeconfig");
    Grants {
        runs: record.clone(),
        git_token,
        kubeconfig: kubeconfig.and_then(|held| held.value.as_str().map(str::to_owned)),
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
        job: None,
    }
}
