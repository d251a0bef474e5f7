//! What every command that serves or runs something begins with: settings, policy, record, signals.

use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use countersign_exec::{advice_on_user, forget_homes, git_directory, memory};
use countersign_gateway::approval::Approver;
use countersign_gateway::approval::board::Board;
use countersign_gateway::audit::event::{Actor, Draft, EventType};
use countersign_gateway::audit::reading::{Filter, Pick};
use countersign_gateway::audit::redact::{self, Redactor, is_secret_name};
use countersign_gateway::audit::row::Row;
use countersign_gateway::audit::{Change, Record as _};
use countersign_gateway::clock::Clock;
use countersign_gateway::delegation::desk::DelegationDesk;
use countersign_gateway::ids::IdSource;
use countersign_gateway::policy::effective::{EffectivePolicy, SandboxMode};
use countersign_gateway::policy::places::{Boundless, Steering};
use countersign_gateway::policy::plan::RunAs;
use countersign_gateway::session::credential::Credentials;
use countersign_gateway::session::lifetime::Sessions;
use countersign_gateway::spine::{Gateway, Settings as SpineSettings};
use countersign_gateway::tools::declared::DeclaredTools;
use countersign_store::{Durability, Store};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::approvers::Approvers;
use crate::config::{self, Flags, Problems, Settings, Source, Surroundings, Warning};
use crate::idle;
use crate::interpreters;
use crate::policy;
use crate::reload::{Reload, ReloadParts};
use crate::retention::Watched;
use crate::telemetry::{self, Telemetry};
use crate::wiring::{self, Launchpad, Parts};

const HOUR: Duration = Duration::from_secs(3_600);
/// When a start is over and its first client has looked around.
const SETTLED_AFTER: Duration = Duration::from_millis(500);
/// Time between a long answer and giving back the memory it took, and at least between two times of that.
const GIVEN_BACK_AFTER: Duration = Duration::from_secs(3);
/// Time between two looks for what other processes left open when they died.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// Settings and the policy they came to.
pub(crate) struct Started {
    pub(crate) settings: Settings,
    pub(crate) policy: EffectivePolicy,
    pub(crate) surroundings: Surroundings,
    pub(crate) flags: Flags,
}

/// What a transport serves.
pub(crate) struct Joined {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) sessions: Arc<dyn Sessions>,
    pub(crate) credentials: Arc<dyn Credentials>,
    pub(crate) board: Arc<Board>,
    pub(crate) record: Arc<Store>,
    pub(crate) reload: Arc<Reload>,
    /// Acts that services outside perform, where this process sends them.
    pub(crate) delegations: Option<Arc<DelegationDesk>>,
}

/// The configuration cannot be used; exit code 2.
#[derive(Debug)]
pub(crate) struct BadConfiguration(pub(crate) Problems);

impl std::fmt::Display for BadConfiguration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the configuration has problems:\n{}", self.0)
    }
}

impl std::error::Error for BadConfiguration {}

/// What was typed cannot be used; exit code 2.
#[derive(Debug)]
pub(crate) struct BadUsage(pub(crate) String);

impl std::fmt::Display for BadUsage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadUsage {}

/// Secrets that a server needs where they are configured, besides those that approvers are asked with.
pub(crate) const SERVERS_SECRETS: &[&str] = &["callbacks.token", "github.token", "github.webhook_secret"];

/// Whether a server does not start without the secret under this key.
pub(crate) fn needs_secret(key: &str) -> bool {
    key == config::APPROVERS || SERVERS_SECRETS.contains(&key)
}

impl Started {
    pub(crate) fn load(flags: &Flags) -> anyhow::Result<Self> {
        Self::of(Surroundings::of_this_process()?, flags)
    }

    /// The same in other surroundings than those of this process.
    pub(crate) fn of(surroundings: Surroundings, flags: &Flags) -> anyhow::Result<Self> {
        let settings = config::load(&surroundings, flags).map_err(BadConfiguration)?;
        let policy = policy::effective(&settings).map_err(|error| BadUsage(format!("{error:#}")))?;
        Ok(Self {
            settings,
            policy,
            surroundings,
            flags: flags.clone(),
        })
    }

    /// All secrets under these keys, and those that approvers are asked with, can be had; otherwise each that cannot is
    /// told, before anything is opened.
    pub(crate) fn check_secrets(&self, keys: &[&str]) -> Result<(), BadConfiguration> {
        let missing = self.settings.missing_secrets(&self.surroundings).into_iter();
        let needed = missing.filter(|(key, _)| *key == config::APPROVERS || keys.contains(key));
        let problems: Vec<_> = needed.map(|(_, problem)| problem).collect();
        match problems.is_empty() {
            true => Ok(()),
            false => Err(BadConfiguration(Problems(problems))),
        }
    }

    /// The files that the policy comes from, whether they exist or not.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let named = self.flags.config.clone();
        let named = named.or_else(|| self.surroundings.variable("COUNTERSIGN_CONFIG").map(PathBuf::from));
        let project = self.settings.places.workspace_root.as_ref();
        let project = project
            .unwrap_or(&self.settings.places.start)
            .join(config::PROJECT_FILE);
        let mut files = vec![project, self.settings.state_dir.join(config::TRUSTED_FILE)];
        files.extend(self.surroundings.operator_file());
        files.extend(self.settings.tool_files.watched.iter().cloned());
        files.extend(named.map(|path| self.surroundings.current_dir.join(path)));
        files
    }

    /// Logs and traces, as configured, for as long as the result is held.
    pub(crate) fn telemetry(&self) -> anyhow::Result<Telemetry> {
        telemetry::begin(self.settings.otlp_endpoint.as_deref())
    }

    /// Opening may wait, for other processes and for what a crash left to be closed, so it does not
    /// happen on the thread that runs everything.
    pub(crate) async fn record(&self) -> anyhow::Result<Arc<Store>> {
        let durability = match self.settings.audit.durability.as_str() {
            "process" => Durability::Process,
            _ => Durability::Power,
        };
        let options = wiring::options(&self.settings, durability);
        let state_dir = self.settings.state_dir.clone();
        let opened = tokio::task::spawn_blocking(move || wiring::record(&state_dir, options)).await;
        opened.context("cannot open the record")?.map(Arc::new)
    }

    /// The record as it stands, for a command that looks at it or changes one thing: what others left open is left
    /// to those that serve.
    pub(crate) fn store(&self, durability: Durability) -> anyhow::Result<Store> {
        let options = wiring::options(&self.settings, durability);
        Store::open(&self.settings.state_dir, options).context("cannot open the record")
    }

    /// Does what a record needs from time to time, for as long as this process serves: closes what
    /// crashed processes left open, and removes what is older than it must be kept, homes of commands too.
    pub(crate) fn keep_house(&self, record: &Arc<Store>, homes: PathBuf) {
        tokio::spawn(sweep_behind_others(record.clone()));
        let (record, days) = (record.clone(), self.settings.command.audit_retention_days);
        let kept = HOUR * 24 * days;
        let mut watched = Watched::begin();
        tokio::spawn(async move {
            let mut hours = tokio::time::interval(HOUR);
            hours.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            // The first tick comes at once, and starting has just closed what was left open.
            hours.tick().await;
            loop {
                let (record, homes) = (record.clone(), homes.clone());
                let done = tokio::task::spawn_blocking(move || {
                    if let Err(error) = forget_homes(&homes, kept) {
                        tracing::warn!(%error, "homes that nobody uses any more could not be removed");
                    }
                    let swept = record.sweep_abandoned(Clock::system().now(), &IdSource::random());
                    let pruned = watched.prune(&record, days);
                    let done = swept.map(drop).map_err(anyhow::Error::from).and(pruned);
                    (watched, done)
                });
                let (seen, done) = done
                    .await
                    .unwrap_or_else(|broken| (Watched::begin(), Err(broken.into())));
                watched = seen;
                if let Err(error) = done {
                    let reason = format!("{error:#}");
                    tracing::warn!(reason, "the record could not be looked after; trying again in an hour");
                }
                hours.tick().await;
            }
        });
    }

    /// The board of a process that stays: it hears of what others ask and decide.
    pub(crate) fn board(&self, record: &Arc<Store>, approvers: Vec<Arc<dyn Approver>>) -> Arc<Board> {
        let bell = wiring::bell(record, &self.settings.state_dir);
        let board = wiring::board(record, &self.redactor(), bell, approvers);
        board.listen();
        board
    }

    /// Joins everything; the policy in force is in the record before the first call.
    pub(crate) async fn joined(
        &self,
        launchpad: Launchpad,
        approvers: Approvers,
        answer_within: Duration,
    ) -> anyhow::Result<Joined> {
        if let Some(lack) = lack_of_proc() {
            anyhow::bail!(lack);
        }
        let record = self.record().await?;
        let redactor = self.redactor();
        self.record_policy(&record, &redactor).await?;
        self.keep_house(&record, launchpad.directories.homes.clone());
        let sessions = wiring::sessions(&record, &redactor);
        let credentials = wiring::credentials(&record);
        let journal = wiring::journal(&record, &redactor);
        let board = self.board(&record, approvers.joined(&journal));
        let files = self.files();
        let parts = Parts {
            policy: self.policy.clone(),
            settings: SpineSettings {
                answer_within,
                output_limit: self.settings.output_limit_bytes,
                acts_end_within: self.settings.shutdown_grace,
            },
            board: board.clone(),
            redactor: redactor.clone(),
            record: record.clone(),
        };
        let gateway = wiring::gateway(parts, launchpad);
        gateway.recognise(credentials.clone());
        board.recognise(credentials.clone());
        let reload = Reload::new(
            ReloadParts {
                flags: self.flags.clone(),
                surroundings: self.surroundings.clone(),
                gateway: gateway.clone(),
                board: board.clone(),
                record: record.clone(),
                redactor,
            },
            files,
            self.settings.tool_files.watched.clone(),
        );
        Ok(Joined {
            gateway,
            sessions,
            credentials,
            board,
            record,
            reload,
            delegations: None,
        })
    }

    /// Writes the policy down when it is another than the last one written, so that the digest in
    /// every decision's record leads to the whole of it.
    async fn record_policy(&self, record: &Store, redactor: &Redactor) -> anyhow::Result<()> {
        let last = Filter {
            event_type: Some(EventType::PolicyChanged),
            limit: 1,
            pick: Pick::Newest,
            ..Filter::everything()
        };
        // One look into an index, while nothing else runs here that it could hold up.
        let last = record.query_events(&last).context("cannot look up the last policy")?;
        let payload = |row: &Row| serde_json::from_str::<Value>(&row.payload).ok();
        let digest = self.policy.snapshot()["digest"].take();
        if last
            .first()
            .and_then(payload)
            .is_some_and(|payload| payload["digest"] == digest)
        {
            return Ok(());
        }
        let payload = json!({"digest": digest, "content": redactor.redact_json(&self.policy.content())});
        let ids = IdSource::random();
        let actor = Actor::system("policy");
        let now = Clock::system().now();
        let tools = &self.settings.tool_files.tools;
        let tools = (!tools.is_empty()).then(|| {
            let told = redactor.redact_json(&tools.changes(&DeclaredTools::default()));
            let (event, correlation) = (ids.event(), ids.correlation());
            Draft::new(event, now, correlation, actor.clone(), EventType::ToolsChanged, &told)
        });
        let event = Draft::new(
            ids.event(),
            now,
            ids.correlation(),
            actor,
            EventType::PolicyChanged,
            &payload,
        );
        let change = Change {
            events: std::iter::once(event).chain(tools).collect(),
            ..Change::default()
        };
        record
            .commit(change)
            .await
            .map(drop)
            .context("cannot write the policy into the record")
    }

    /// Knows the values of this process's secret variables, and of what approvers are asked and call back
    /// with, besides the usual shapes of secrets.
    pub(crate) fn redactor(&self) -> Redactor {
        let secret = self
            .surroundings
            .variables
            .iter()
            .filter(|(name, _)| is_secret_name(name));
        let configured = self
            .settings
            .secrets()
            .filter_map(|it| it.read(&self.surroundings).ok());
        Redactor::new(redact::Config {
            patterns: self.settings.audit.redact_patterns.clone(),
            secret_values: secret
                .map(|(_, value)| value.clone())
                .chain(configured)
                .chain(self.settings.tool_files.secrets.iter().cloned())
                .collect(),
        })
    }
}

/// Closes what other processes, perhaps of other nodes, left open, soon after they died: they may never come back to do
/// it, and whoever asks a living one meanwhile hears that the command runs.
async fn sweep_behind_others(record: Arc<Store>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let record = record.clone();
        let swept =
            tokio::task::spawn_blocking(move || record.sweep_abandoned(Clock::system().now(), &IdSource::random()));
        if let Ok(Err(error)) = swept.await {
            tracing::warn!(%error, "what other processes left open could not be looked for, trying again");
        }
    }
}

/// What was left out of the configuration, and what in it decides nothing.
pub(crate) fn warnings(started: &Started) -> impl Iterator<Item = String> {
    let left_out = started.settings.warnings.iter().map(ToString::to_string);
    left_out.chain(idle::entries(&started.policy))
}

/// Tells the operator on standard error.
pub(crate) fn warn(started: &Started) {
    for warning in warnings(started) {
        say(&format!("warning: {warning}"));
    }
    let is_project = |warning: &&Warning| matches!(warning.origin.source, Source::Project { .. });
    if let Some(Source::Project { path, .. }) = started
        .settings
        .warnings
        .iter()
        .find(is_project)
        .map(|it| &it.origin.source)
    {
        let path = path.display();
        say(&format!(
            "what this project may not say was left out; `countersign config trust {path}` lets all of it count"
        ));
    }
}

/// Why no command may have the workspace, and what to do about it. Where there is none, calls name their directory.
pub(crate) fn obstacle_of_workspace(started: &Started) -> Option<String> {
    let sandbox = started.policy.command.sandbox;
    let real = started.settings.places.workspace_root.as_ref()?.canonicalize().ok()?;
    if let Some(boundless) = Boundless::of(&real, sandbox) {
        return Some(format!("{}; {}", boundless.reason(), Boundless::remedy()));
    }
    let steering = match sandbox {
        SandboxMode::ReadOnly => None,
        SandboxMode::WorkspaceWrite | SandboxMode::DangerFullAccess => Steering::around(&real, git_directory),
    };
    steering.map(|steering| format!("{}; correct `workspace_root`", steering.reason()))
}

/// Tells the operator of a server that its commands will not run, or not be able to write.
pub(crate) fn warn_of_workspace(started: &Started) {
    let (command, places) = (&started.policy.command, &started.settings.places);
    let workspace = places.workspace_root.as_ref().unwrap_or(&places.start);
    if let Some(obstacle) = obstacle_of_workspace(started) {
        let workspace = workspace.display();
        say(&format!(
            "warning: commands will be refused: the workspace is `{workspace}`, and {obstacle}"
        ));
        return;
    }
    if command.sandbox == SandboxMode::ReadOnly {
        return;
    }
    let run_as = RunAs {
        non_root: command.run_as_non_root,
        user: command.run_as.clone(),
    };
    if let Some(advice) = advice_on_user(&run_as, workspace, wiring::uid()) {
        say(&format!("warning: {advice}"));
    }
}

/// Tells the operator of a server what the allowlist gives away.
pub(crate) fn warn_of_interpreters(started: &Started) {
    for entry in interpreters::listed(&started.policy.command.allowlist) {
        say(&format!("warning: {}", interpreters::caution(&entry)));
    }
}

/// What is to be said where `/proc` is missing, as in a bare chroot: programs are opened and told apart through it, and
/// without it each would be said not to exist.
pub(crate) fn lack_of_proc() -> Option<&'static str> {
    let lack = "`/proc` is not mounted, and without it no program can be opened; `mount -t proc proc /proc` mounts it";
    (!Path::new("/proc/self/fd").is_dir()).then_some(lack)
}

/// One line on standard error.
pub(crate) fn say(line: &str) {
    // Nobody reading standard error is no reason to stop.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// One thread runs everything: a call then never waits for another thread to wake up.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the event loop")
}

/// Gives back what only the start needed, once the first client has had time to look around.
pub(crate) fn settle_down() {
    tokio::spawn(async {
        tokio::time::sleep(SETTLED_AFTER).await;
        memory::let_go_of_code();
    });
}

/// Gives back what long answers needed, some time after the last of a number of them, for as long as this process
/// serves. Walking through the heap takes a while, so it is not done on the thread that serves everybody.
pub(crate) fn give_back_behind_long_answers(gateway: &Arc<Gateway>) {
    let gateway = gateway.clone();
    tokio::spawn(async move {
        loop {
            gateway.long_answer_left().await;
            tokio::time::sleep(GIVEN_BACK_AFTER).await;
            if tokio::task::spawn_blocking(memory::let_go_of_heap).await.is_err() {
                return;
            }
        }
    });
}

/// Reads the configuration again at every SIGHUP, for as long as this process serves.
pub(crate) fn reload_at_hangup(reload: &Arc<Reload>) -> anyhow::Result<()> {
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    let reload = reload.clone();
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            match reload.now(Actor::system("SIGHUP")).await {
                Ok(()) => say("the configuration was read again"),
                Err(reason) => say(&format!("countersign: {reason}")),
            }
        }
    });
    Ok(())
}

/// Resolves at SIGTERM or SIGINT.
pub(crate) fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
