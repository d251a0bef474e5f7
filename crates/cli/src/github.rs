//! GitHub as configured: who speaks to it, the tools that change labels, and what becomes of its deliveries.

use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::clock::Clock;
use countersign_gateway::github::GitHub;
use countersign_gateway::github::clerk::{Clerk, ClerkParts};
use countersign_gateway::github::labels::{LabelDesk, LabelParts};
use countersign_gateway::github::reception::Reception;
use countersign_gateway::ids::IdSource;
use countersign_gateway::run::desk::RunDesk;
use countersign_gateway::tools::acts::Toolbox;
use countersign_gateway::tools::labels::LabelTools;
use countersign_integrations::github::{Access, RestGitHub};
use countersign_server::http::{WebhookSecret, Webhooks};
use countersign_store::Store;

use crate::config::{Settings, Surroundings};
use crate::start::{BadUsage, Joined};

/// What the configuration says of GitHub.
pub(crate) struct Configured {
    access: Option<Access>,
    webhook_secret: Option<WebhookSecret>,
}

impl Configured {
    /// Reads the secrets; what cannot be used is told before anything is opened.
    pub(crate) fn read(settings: &Settings, surroundings: &Surroundings) -> Result<Self, BadUsage> {
        let secret = |path: &str| -> Result<Option<String>, BadUsage> {
            let wrong = |error: anyhow::Error| BadUsage(format!("`{path}`: {error:#}"));
            let secret = settings.secret(path).map(|secret| secret.read(surroundings));
            secret.transpose().map_err(wrong)
        };
        let url = settings
            .held("github.api_url")
            .and_then(|held| held.value.as_str().map(str::to_owned));
        let access = match secret("github.token")? {
            Some(token) => Some(Access::new(url.as_deref(), token).map_err(|error| BadUsage(error.to_string()))?),
            None => None,
        };
        let webhook_secret = match secret("github.webhook_secret")? {
            Some(secret) => {
                let made = WebhookSecret::new(&secret);
                Some(made.map_err(|error| BadUsage(format!("`github.webhook_secret`: {error}")))?)
            }
            None => None,
        };
        if webhook_secret.is_some() && access.is_none() {
            let message = "`github.webhook_secret` needs `github.token`: what is delivered is answered with labels and \
                comments";
            return Err(BadUsage(message.to_owned()));
        }
        Ok(Self { access, webhook_secret })
    }

    /// The label tools, where there is a token to change labels with. Nothing is asked of GitHub before a
    /// tool is called.
    pub(crate) fn counter(&self, record: &Arc<Store>) -> Option<Counter> {
        let github: Arc<dyn GitHub> = Arc::new(RestGitHub::new(self.access.clone()?, Clock::system()));
        let labels = LabelDesk::new(LabelParts {
            github: github.clone(),
            record: record.clone(),
            clock: Clock::system(),
            ids: IdSource::random(),
        });
        Some(Counter { github, labels })
    }

    /// Takes deliveries, and works them off for as long as this process serves. Runs are told of on GitHub
    /// also where it delivers nothing.
    pub(crate) fn receive(
        &self,
        counter: Option<&Counter>,
        joined: &Joined,
        runs: &Arc<RunDesk>,
        run_time: Duration,
    ) -> Option<Webhooks> {
        let counter = counter?;
        let record = &joined.record;
        let reception = Reception::new(record.clone(), Clock::system(), IdSource::random());
        let clerk = Clerk::new(ClerkParts {
            github: counter.github.clone(),
            labels: counter.labels.clone(),
            reception: reception.clone(),
            deliveries: record.clone(),
            messages: record.clone(),
            runs: record.clone(),
            records: record.clone(),
            record: record.clone(),
            desk: runs.clone(),
            board: joined.board.clone(),
            policies: joined.gateway.clone(),
            run_time,
            clock: Clock::system(),
            ids: IdSource::random(),
        });
        tokio::spawn(clerk.run());
        let secret = self.webhook_secret.clone()?;
        Some(Webhooks { secret, reception })
    }
}

/// Where labels are changed.
pub(crate) struct Counter {
    github: Arc<dyn GitHub>,
    labels: Arc<LabelDesk>,
}

impl Counter {
    pub(crate) fn tools(&self) -> Arc<dyn Toolbox> {
        LabelTools::new(self.labels.clone())
    }
}
