//! The agents of this installation: those that are configured, and those that are found.
//!
//! Finding one is a look along the trusted path, nothing is started for it: a program that does not work says
//! so in the job that wants it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use countersign_agents::{Household, Launcher, driver};
use countersign_exec::user_of_agents;
use countersign_gateway::audit::Pending;
use countersign_gateway::ids::RunId;
use countersign_gateway::job::branch::of_head;
use countersign_gateway::job::state::Job;
use countersign_gateway::job::supervise::{Agent, Agents};
use countersign_gateway::run::keeping::Runs;
use countersign_gateway::run::lifecycle::Runtime;
use countersign_gateway::run::state::Run;
use countersign_gateway::tools::jobs::Offered;
use rustix::fs::{Mode, OFlags, open};

use crate::config::{AGENTS_OWN, AgentSettings, Settings, built_in_agents};
use crate::wiring;

/// More than a file has that names a branch.
const HEAD_BYTES_MAX: u64 = 4_096;
/// The name that `start-codex-task` starts.
const CODEX: &str = "codex";

/// What the binary knows of homes.
pub(crate) struct Around<'a> {
    /// Of the user that this process runs as.
    pub(crate) home: Option<&'a Path>,
    /// Where homes are made for users who have none.
    pub(crate) homes: &'a Path,
}

/// The agents that jobs may start here.
pub(crate) struct Installed {
    agents: BTreeMap<String, One>,
    /// None where there are no agents.
    household: Option<Household>,
}

/// One agent as it was defined, with the place in which it is offered.
struct One {
    place: usize,
    settings: AgentSettings,
    agent: Agent,
}

impl Installed {
    /// Those that are there. Fails where none could be started.
    pub(crate) fn find(settings: &Settings, around: &Around<'_>) -> anyhow::Result<Self> {
        let present = present(settings);
        if present.is_empty() {
            return Ok(Self::none());
        }
        let household = household(settings, around)?;
        let launcher = Launcher::new(household.clone());
        let agents = present.into_iter().enumerate().filter_map(|(place, settings)| {
            let definition = settings.definition.clone();
            let (name, environment) = (definition.name.clone(), definition.env.clone());
            let driver = driver(&settings.driver, launcher.clone(), definition)?;
            let agent = Agent { driver, environment };
            Some((name, One { place, settings, agent }))
        });
        Ok(Self {
            agents: agents.collect(),
            household: Some(household),
        })
    }

    /// Goes on with the drivers of agents that are defined as before: they know who shares which process.
    fn after(mut self, before: &Self) -> Self {
        if self.household == before.household {
            for (name, one) in &mut self.agents {
                let same = before.agents.get(name).filter(|it| it.settings == one.settings);
                if let Some(same) = same {
                    one.agent = same.agent.clone();
                }
            }
        }
        self
    }

    /// Nobody.
    pub(crate) fn none() -> Self {
        Self {
            agents: BTreeMap::new(),
            household: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.agents.is_empty()
    }

    /// What the tools offer, in the order of the file.
    pub(crate) fn offered(&self) -> Offered {
        let mut names: Vec<_> = self
            .agents
            .iter()
            .map(|(name, one)| (one.place, name.clone()))
            .collect();
        names.sort();
        Offered {
            names: names.into_iter().map(|(_, name)| name).collect(),
            codex: self.agents.contains_key(CODEX).then(|| CODEX.to_owned()),
        }
    }
}

/// The agents of a process that stays: another configuration may bring others. A job that has begun keeps the
/// agent that it began with.
pub(crate) struct AgentsInForce {
    grants: Grants,
    agents: RwLock<InForce>,
}

struct InForce {
    installed: Installed,
    /// Those that were offered once: they may have left something.
    former: BTreeMap<String, Agent>,
}

impl AgentsInForce {
    /// Gives the agents of runs what is theirs.
    pub(crate) fn new(installed: Installed, grants: Grants) -> Arc<Self> {
        let former = BTreeMap::new();
        Arc::new(Self {
            grants,
            agents: RwLock::new(InForce { installed, former }),
        })
    }

    /// Puts these in the place of those before.
    pub(crate) fn replace(&self, installed: Installed) {
        let mut agents = self.agents.write().unwrap_or_else(PoisonError::into_inner);
        let next = installed.after(&agents.installed);
        let before = std::mem::replace(&mut agents.installed, next);
        let before = before.agents.into_iter().map(|(name, one)| (name, one.agent));
        agents.former.extend(before);
    }

    pub(crate) fn offered(&self) -> Offered {
        self.read().installed.offered()
    }

    fn read(&self) -> RwLockReadGuard<'_, InForce> {
        self.agents.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Agents for AgentsInForce {
    fn find(&self, name: &str) -> Option<Agent> {
        self.read().installed.agents.get(name).map(|one| one.agent.clone())
    }

    fn known(&self, name: &str) -> Option<Agent> {
        self.find(name).or_else(|| self.read().former.get(name).cloned())
    }

    fn grants(&self, job: &Job) -> Pending<BTreeMap<String, String>> {
        let found = job.run_id.as_deref().map(|run| (run, self.grants.clone()));
        let found = found.map(|(run, grants)| (grants.runs.find_run(&RunId::trusted(run)), grants));
        Box::pin(async move {
            match found {
                None => BTreeMap::new(),
                Some((run, grants)) => match run.await {
                    Ok(Some(run)) => grants.of(&run),
                    // What is not known is not given.
                    Ok(None) | Err(_) => BTreeMap::new(),
                },
            }
        })
    }

    fn branch(&self, directory: &Path) -> Pending<Option<String>> {
        let directory = directory.to_owned();
        Box::pin(async move {
            let looked = tokio::task::spawn_blocking(move || branch(&directory));
            looked.await.ok().flatten()
        })
    }
}

/// The branch that is checked out in a directory, or in the one that it belongs to.
fn branch(directory: &Path) -> Option<String> {
    let found = directory.ancestors().map(|place| place.join(".git"));
    let git = found.into_iter().find(|git| fs::symlink_metadata(git).is_ok())?;
    let home = match short_text(&git) {
        // A worktree's `.git` names the directory that is meant.
        Some(text) => {
            let named = text.strip_prefix("gitdir: ")?.trim_end();
            git.parent()?.join(named)
        }
        None => git,
    };
    of_head(&short_text(&home.join("HEAD"))?)
}

/// A small file's text. Agents can put anything there: it is neither followed elsewhere nor waited for.
fn short_text(path: &Path) -> Option<String> {
    let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::File::from(open(path, how, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(HEAD_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// What the agents of runs are given: credentials of their own, never those that we act with.
#[derive(Clone)]
pub(crate) struct Grants {
    pub(crate) runs: Arc<dyn Runs>,
    pub(crate) git_token: Option<String>,
    /// With `{namespace}` where the run's stands.
    pub(crate) kubeconfig: Option<String>,
}

impl Grants {
    fn of(&self, run: &Run) -> BTreeMap<String, String> {
        let kubeconfig = match run.runtime {
            Runtime::FullEnv => self.kubeconfig.as_deref().and_then(|path| of_namespace(path, run)),
            Runtime::CodeOnly => None,
        };
        // Whoever only talks has nothing to publish with.
        if run.is_talk() {
            return BTreeMap::new();
        }
        let given = [
            ("CODEXK8S_GIT_BOT_TOKEN", self.git_token.clone()),
            ("KUBECONFIG", kubeconfig),
        ];
        let given = given
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        given.collect()
    }
}

/// The file of the run's namespace; none where the run has no namespace that is one.
fn of_namespace(path: &str, run: &Run) -> Option<String> {
    let is_name = |name: &&String| {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=63).contains(&name.len()) && name.bytes().all(is_plain)
    };
    let namespace = run.namespace.as_ref().filter(is_name)?;
    Some(path.replace("{namespace}", namespace))
}

/// Those that are configured, then those that need no configuration and are on the path.
fn present(settings: &Settings) -> Vec<AgentSettings> {
    let mut present = settings.agents.clone();
    for agent in built_in_agents() {
        let is_configured = present.iter().any(|it| it.definition.name == agent.definition.name);
        let program = agent.definition.command.first().map_or("", String::as_str);
        if !is_configured
            && settings
                .command
                .path
                .iter()
                .any(|place| is_program(&place.join(program)))
        {
            present.push(agent);
        }
    }
    present
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// What every agent has around it.
fn household(settings: &Settings, around: &Around<'_>) -> anyhow::Result<Household> {
    let places = &settings.places;
    let workspace = places.workspace_root.as_ref().unwrap_or(&places.start);
    let user = user_of_agents(settings.command.run_as.as_deref(), workspace, wiring::uid())
        .map_err(|reason| anyhow::anyhow!("agents cannot be started: {reason}"))?;
    let is_other = user.identity.is_some();
    let home = match (user.home, around.home) {
        (Some(home), _) => home,
        (None, Some(home)) if !is_other => home.to_owned(),
        (None, _) => made_home(around.homes, user.identity.as_ref().map(|it| (it.uid, it.gid)))?,
    };
    let temporary = std::env::temp_dir();
    let directories = settings.command.path.iter().map(|place| place.to_string_lossy());
    Ok(Household {
        identity: user.identity,
        path: directories.collect::<Vec<_>>().join(":"),
        hidden: hidden(settings, &home),
        home,
        // Another user may not write where we do; everybody may here.
        tmp: if is_other { "/tmp".into() } else { temporary.clone() },
        runtime: temporary.join(format!("countersign-agents-{}", wiring::uid())),
    })
}

/// What commands must not see, except what the agents log in with themselves.
fn hidden(settings: &Settings, home: &Path) -> Vec<PathBuf> {
    let own = AGENTS_OWN.map(|name| home.join(name));
    let hidden = settings.places.hidden.iter();
    hidden.filter(|place| !own.contains(place)).cloned().collect()
}

/// A home for a user who has none, kept between jobs.
fn made_home(homes: &Path, user: Option<(u32, u32)>) -> anyhow::Result<PathBuf> {
    let (uid, gid) = user.unwrap_or((wiring::uid(), wiring::uid()));
    let home = homes.join(format!("agents-{uid}"));
    let make = || -> std::io::Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(&home) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }?;
        if user.is_some() {
            chown(&home, Some(uid), Some(gid))?;
        }
        Ok(())
    };
    make().map_err(|error| anyhow::anyhow!("cannot make a home for agents, `{}`: {error}", home.display()))?;
    Ok(home)
}
