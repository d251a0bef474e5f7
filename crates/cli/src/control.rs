//! The control tools, each where its systems are configured: a tool that could not work is not listed.
//!
//! Nothing is connected here. Clients are made when the first act needs them, and an idle server pays for none.

use std::sync::Arc;

use anyhow::Context as _;
use countersign_gateway::clock::Clock;
use countersign_gateway::ids::IdSource;
use countersign_gateway::tools::acts::Toolbox;
use countersign_gateway::tools::database::{DatabaseParts, DatabaseTool};
use countersign_gateway::tools::secrets::keeping::Vault;
use countersign_gateway::tools::secrets::{SecretParts, SecretTool};
use countersign_integrations::github_secrets::GithubSecrets;
use countersign_integrations::kubernetes::KubernetesSecrets;
use countersign_integrations::postgres::Server;
use countersign_integrations::vault::{Keys, RecordVault};
use countersign_store::Store;

use crate::start::{self, Started};

/// S4's variable: the environments that databases may be for.
const ENVIRONMENTS: &str = "CODEXK8S_PROJECT_DB_LIFECYCLE_ALLOWED_ENVS";
const ENVIRONMENTS_DEFAULT: &str = "dev,production,prod";
const GITHUB_API: &str = "https://api.github.com";

/// The tools that can work here.
pub(crate) fn toolboxes(started: &Started, record: &Arc<Store>) -> Vec<Arc<dyn Toolbox>> {
    let made = [databases(started, record), secrets(started, record)];
    let told = made.into_iter().filter_map(|made| match made {
        Ok(toolbox) => toolbox,
        Err(error) => {
            start::say(&format!("warning: {error:#}"));
            None
        }
    });
    told.collect()
}

/// Puts right what an earlier process left half done, beside everything else.
pub(crate) fn repair(toolboxes: &[Arc<dyn Toolbox>]) {
    for toolbox in toolboxes {
        tokio::spawn(toolbox.repair());
    }
}

type Made = anyhow::Result<Option<Arc<dyn Toolbox>>>;

fn databases(started: &Started, record: &Arc<Store>) -> Made {
    let Some(url) = started.settings.secret("database_lifecycle.url") else {
        return Ok(None);
    };
    let url = url
        .read(&started.surroundings)
        .context("no databases: `database_lifecycle.url` cannot be read")?;
    let server = Server::new(&url).context("no databases: `database_lifecycle.url` cannot be used")?;
    let listed = started.surroundings.variable(ENVIRONMENTS);
    let environments = environments(listed.unwrap_or(ENVIRONMENTS_DEFAULT));
    anyhow::ensure!(
        !environments.is_empty(),
        "no databases: `{ENVIRONMENTS}` names no environment; name some, or unset it for `{ENVIRONMENTS_DEFAULT}`"
    );
    let parts = DatabaseParts {
        server: Arc::new(server),
        databases: record.clone(),
        record: record.clone(),
        clock: Clock::system(),
        ids: IdSource::random(),
        environments,
    };
    Ok(Some(DatabaseTool::new(parts)))
}

fn secrets(started: &Started, record: &Arc<Store>) -> Made {
    let settings = &started.settings;
    let kubeconfig = settings
        .held("kubernetes.kubeconfig")
        .and_then(|held| held.value.as_str());
    let (Some(token), Some(kubeconfig)) = (settings.secret("github.token"), kubeconfig) else {
        return Ok(None);
    };
    let token = token
        .read(&started.surroundings)
        .context("no secrets: `github.token` cannot be read")?;
    // Found out now, and not when a person has approved and GitHub has its half.
    let kubernetes = KubernetesSecrets::new(kubeconfig.as_ref())
        .map_err(|error| anyhow::anyhow!("no secrets: `kubernetes.kubeconfig` cannot be used: {error}"))?;
    let api = settings.held("github.api_url").and_then(|held| held.value.as_str());
    // Every node must make the same values and open what another sealed, and the database must tell neither.
    let key = |purpose: &str| record.guarded_key(purpose).context("no secrets");
    let vault = RecordVault::new(Keys {
        values: key("values of synchronised secrets")?,
        digests: key("digests of secrets that callers bring")?,
        sealing: key("secrets on their way")?,
    });
    let parts = SecretParts {
        github: Arc::new(GithubSecrets::new(api.unwrap_or(GITHUB_API), &token)),
        kubernetes: Arc::new(kubernetes),
        vault: Arc::new(vault),
        syncs: record.clone(),
        record: record.clone(),
        clock: Clock::system(),
        ids: IdSource::random(),
    };
    Ok(Some(SecretTool::new(parts)))
}

/// For whoever only makes digests: with keys of this state directory, which need no other node.
pub(crate) fn digests(record: &Store) -> Arc<dyn Vault> {
    Arc::new(RecordVault::new(Keys {
        values: record.derived_key("values of declared tools"),
        digests: record.derived_key("digests of what declared tools only take in"),
        // Any node may hear of the act, where nodes share a key.
        sealing: record
            .guarded_key("secrets of declared tools")
            .unwrap_or_else(|_| record.derived_key("secrets of declared tools")),
    }))
}

/// The names in a comma list, each once.
fn environments(list: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_are_a_comma_list_and_an_empty_one_allows_none() {
        assert_eq!(environments(ENVIRONMENTS_DEFAULT), ["dev", "production", "prod"]);
        assert_eq!(environments(" a, b,,a "), ["a", "b"]);
        assert_eq!(environments(""), Vec::<String>::new());
    }
}
