//! Runs in a process that stays: where they are set off, and who gives them their turns.

use std::sync::Arc;

use countersign_gateway::approval::board::Board;
use countersign_gateway::audit::redact::Redactor;
use countersign_gateway::clock::Clock;
use countersign_gateway::error::Refusal;
use countersign_gateway::ids::IdSource;
use countersign_gateway::run::desk::{RunDesk, RunDeskParts};
use countersign_gateway::run::prompt::PromptTemplate;
use countersign_gateway::run::state::Run;
use countersign_gateway::run::steward::{Planner, Steward, StewardParts, Work};
use countersign_gateway::spine::Gateway;
use countersign_store::Store;

use crate::agents::AgentsInForce;
use crate::config::Settings;
use crate::jobs::Workshop;
use crate::start::{BadUsage, Joined};

/// Where people, tools and webhooks set runs off.
pub(crate) fn desk(record: &Arc<Store>, board: &Arc<Board>, redactor: &Redactor) -> Arc<RunDesk> {
    RunDesk::new(RunDeskParts {
        runs: record.clone(),
        record: record.clone(),
        board: board.clone(),
        redactor: redactor.clone(),
        clock: Clock::system(),
        ids: IdSource::random(),
    })
}

/// Gives runs their turns for as long as this process serves.
pub(crate) fn look_after(joined: &Joined, workshop: &Workshop, template: PromptTemplate) {
    let steward = Steward::new(StewardParts {
        desk: workshop.runs.clone(),
        jobs: joined.record.clone(),
        job_desk: workshop.desk.clone(),
        planner: Arc::new(Plans {
            gateway: joined.gateway.clone(),
            agents: workshop.agents.clone(),
            template,
        }),
    });
    tokio::spawn(steward.run());
}

/// What agents are told, as the operator wrote it.
pub(crate) fn template(settings: &Settings) -> anyhow::Result<PromptTemplate> {
    match &settings.run_prompt {
        None => Ok(PromptTemplate::standard()),
        Some(text) => PromptTemplate::parse(text)
            .map_err(|error| BadUsage(format!("`runs.prompt` cannot be used: {error}")).into()),
    }
}

/// The policy in force and the agents of this installation.
struct Plans {
    gateway: Arc<Gateway>,
    agents: Option<Arc<AgentsInForce>>,
    template: PromptTemplate,
}

impl Planner for Plans {
    fn plan(&self, run: &Run) -> Result<Work, Refusal> {
        let agents = self.agents.as_ref().map(|agents| agents.offered().names);
        self.gateway.assign(run, &agents.unwrap_or_default(), &self.template)
    }
}
