//! The checked value: everything the sources came to, with types, for the wiring to use.
//!
//! Words stay text here, one of those the table of keys lists, until they become the gateway's own
//! types. Keys that no part reads yet are kept and answered by `value`.

use std::path::PathBuf;
use std::time::Duration;

use countersign_gateway::limits;
use countersign_store::postgres::address;
use serde_json::Value as Json;

use super::agents::{self, AgentSettings};
use super::approvers::{self, HttpApproverSettings};
use super::check;
use super::declared::{self, ToolFiles};
use super::hidden;
use super::load::{Gathered, inside};
use super::merge::{Effective, Held};
use super::origin::{Origin, Problem, Warning};
use super::secret::Secret;
use super::shape;
use super::surroundings::Surroundings;

/// Services that are asked.
pub(crate) const APPROVERS: &str = "approvers";

/// The whole configuration in force.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) command: CommandSettings,
    pub(crate) approval: ApprovalSettings,
    pub(crate) places: PlaceSettings,
    pub(crate) audit: AuditSettings,
    pub(crate) limits: LimitSettings,
    pub(crate) answer_within: Duration,
    pub(crate) output_limit_bytes: usize,
    pub(crate) shutdown_grace: Duration,
    /// An idle session ends after this time.
    pub(crate) session_ttl: Duration,
    pub(crate) listen: String,
    /// Where traces go.
    pub(crate) otlp_endpoint: Option<String>,
    pub(crate) tls: Option<Tls>,
    pub(crate) anonymous_agents: bool,
    /// Services that are asked, in the order of the file.
    pub(crate) http_approvers: Vec<HttpApproverSettings>,
    /// Those that are configured, in the order of the file.
    pub(crate) agents: Vec<AgentSettings>,
    /// Agents at work at once.
    pub(crate) processes_max: Option<usize>,
    /// Tools that files declare.
    pub(crate) tool_files: ToolFiles,
    /// How long a run may work.
    pub(crate) run_time: Duration,
    /// What a run's agent is told, with places that the run fills.
    pub(crate) run_prompt: Option<String>,
    pub(crate) callback_token: Option<Secret>,
    /// Where they reach this server.
    pub(crate) callback_url: Option<String>,
    pub(crate) state_dir: PathBuf,
    pub(crate) state_dir_origin: Origin,
    /// The operator's file, where there is one.
    pub(crate) operator_file: Option<PathBuf>,
    /// A database other than the one in the state directory.
    pub(crate) database: Option<(String, Origin)>,
    /// The sources that took part, weakest first.
    pub(crate) sources: Vec<String>,
    pub(crate) warnings: Vec<Warning>,
    effective: Effective,
}

#[derive(Clone, Debug)]
pub(crate) struct CommandSettings {
    /// Empty where narrowing left nothing: then no program may run.
    pub(crate) allowlist: Vec<String>,
    pub(crate) timeout: Duration,
    pub(crate) timeout_max: Duration,
    pub(crate) cpu_limit: String,
    pub(crate) memory_limit: String,
    pub(crate) pids_limit: u64,
    pub(crate) run_as_non_root: bool,
    pub(crate) run_as: Option<String>,
    pub(crate) audit_retention_days: u32,
    pub(crate) sandbox: String,
    pub(crate) network: String,
    pub(crate) env_allow: Vec<String>,
    pub(crate) require: Vec<String>,
    pub(crate) path: Vec<PathBuf>,
    pub(crate) read_paths: Vec<PathBuf>,
    pub(crate) helpers: Vec<(String, Vec<String>)>,
}

#[derive(Clone, Debug)]
pub(crate) struct ApprovalSettings {
    pub(crate) mode: String,
    pub(crate) timeout: Option<Duration>,
    /// The configured rules; the built-in ones come before them, and an entry with the pattern of a
    /// built-in rule takes its place.
    pub(crate) whitelist: Vec<WhitelistEntry>,
    pub(crate) self_approval: bool,
    pub(crate) quorum: u64,
    /// Whether an approver of type `client` is listed.
    pub(crate) client_decides: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct WhitelistEntry {
    pub(crate) pattern: String,
    pub(crate) reason: Option<String>,
    pub(crate) enabled: bool,
    /// Commands that the rule must and must not cover.
    pub(crate) matching: Vec<String>,
    pub(crate) not_matching: Vec<String>,
    pub(crate) source: String,
}

#[derive(Clone, Debug)]
pub(crate) struct PlaceSettings {
    pub(crate) workspace_root: Option<PathBuf>,
    /// As written; none is no restriction.
    pub(crate) cwd_roots: Option<Vec<PathBuf>>,
    pub(crate) start: PathBuf,
    pub(crate) hidden: Vec<PathBuf>,
}

#[derive(Clone, Debug)]
pub(crate) struct AuditSettings {
    /// `power` or `process`.
    pub(crate) durability: String,
    pub(crate) redact_patterns: Vec<regex::Regex>,
    pub(crate) witness: Option<String>,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LimitSettings {
    pub(crate) body_bytes: usize,
    pub(crate) line_bytes: usize,
    pub(crate) depth: usize,
    pub(crate) requests_per_second: Option<f64>,
    pub(crate) burst: Option<u64>,
    pub(crate) sessions_max: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Tls {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Settings {
    /// Gives types to what was gathered; cross-checks may add problems.
    pub(super) fn build(gathered: Gathered, surroundings: &Surroundings, problems: &mut Vec<Problem>) -> Option<Self> {
        let Gathered {
            mut effective,
            state_dir,
            state_dir_origin,
            database,
            cwd_roots,
            operator_file,
            mut sources,
            mut warnings,
        } = gathered;
        check::settle(&mut effective, problems, &mut warnings);
        if let Some((url, origin)) = &database
            && address::is_open_to_others(url)
        {
            warnings.push(Warning {
                origin: origin.clone(),
                key: "database".to_owned(),
                reason: "it is reached in the open; others can read the record and answer in its place; add \
                         `sslmode=verify-full`"
                    .to_owned(),
            });
        }
        let http_approvers = approvers::read(&effective);
        let callback_token = Secret::of(effective.value("callbacks.token"));
        let ours: Vec<PathBuf> = surroundings
            .config_dir()
            .into_iter()
            .chain(operator_file.clone())
            .chain(hidden::secret_files(&effective, &http_approvers))
            .chain(Reader(&effective).path("kubernetes.kubeconfig"))
            .chain(Reader(&effective).path("tls.key"))
            .collect();
        let read = Reader(&effective);
        let places = PlaceSettings {
            workspace_root: read.path("workspace_root"),
            cwd_roots,
            start: surroundings.current_dir.clone(),
            hidden: hidden::places(&state_dir, &ours, surroundings),
        };
        let workspace = places.workspace_root.as_ref().unwrap_or(&places.start);
        if inside(&state_dir, workspace) {
            let reason =
                "the state directory is inside the workspace; commands run only where it can be masked; this flag, or \
                          `COUNTERSIGN_STATE_DIR`, names another"
                    .to_owned();
            warnings.push(Warning {
                origin: state_dir_origin.clone(),
                key: "--state-dir".to_owned(),
                reason,
            });
        }
        let tool_files = declared::load(&effective, surroundings, &state_dir, workspace, problems, &mut warnings);
        sources.extend(tool_files.sources.iter().cloned());
        Some(Self {
            command: read.command(),
            approval: read.approval(),
            audit: read.audit(),
            limits: read.limits(),
            answer_within: read.millis("answer_within_ms")?,
            output_limit_bytes: read.whole("output_limit_bytes") as usize,
            shutdown_grace: read.millis("shutdown_grace_ms")?,
            session_ttl: Duration::from_secs(read.whole("sessions.ttl_seconds")),
            listen: read.text("listen"),
            otlp_endpoint: read.maybe("telemetry.otlp_endpoint"),
            tls: read
                .path("tls.cert")
                .zip(read.path("tls.key"))
                .map(|(cert, key)| Tls { cert, key }),
            anonymous_agents: read.flag("auth.anonymous_agents"),
            http_approvers,
            agents: agents::read(&effective),
            processes_max: read.number("jobs.maxProcesses"),
            tool_files,
            run_time: Duration::from_secs(read.whole("runs.timeout_seconds")).min(limits::RUN_TIME_MAX),
            run_prompt: read.maybe("runs.prompt"),
            callback_token,
            callback_url: read.maybe("callbacks.url"),
            places,
            state_dir,
            state_dir_origin,
            operator_file,
            database,
            sources,
            warnings,
            effective,
        })
    }

    /// The value in force under a key such as `command_policy.sandbox`, and who set it.
    pub(crate) fn held(&self, path: &str) -> Option<&Held> {
        super::keys::find(path).map(|key| self.effective.held(key.path))
    }

    /// The secret under a key such as `github.token`, where one is set.
    pub(crate) fn secret(&self, path: &str) -> Option<Secret> {
        self.held(path).and_then(|held| Secret::of(&held.value))
    }

    /// What approvers are asked with, and every key that holds a secret.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = Secret> {
        let headers = self.http_approvers.iter().flat_map(|it| &it.headers);
        let keys = self.effective.iter().filter_map(|(_, held)| Secret::of(&held.value));
        headers.map(|(_, secret)| secret.clone()).chain(keys)
    }

    /// Secrets that cannot be had here, each with its key and where that stands.
    pub(crate) fn missing_secrets(&self, surroundings: &Surroundings) -> Vec<(&'static str, Problem)> {
        let headers = self.http_approvers.iter().flat_map(|approver| {
            let name = |header: &String| format!("approver `{}`: `headers.{header}`", approver.name);
            let headers = approver.headers.iter();
            headers.map(move |(header, secret)| (APPROVERS, name(header), secret.clone()))
        });
        let keys = self.effective.iter();
        let keys = keys.filter_map(|(key, held)| Some((key, format!("`{key}`"), Secret::of(&held.value)?)));
        let missing = keys.chain(headers).filter_map(|(key, name, secret)| {
            let error = secret.read(surroundings).err()?;
            let origin = self.effective.held(key).origin.clone();
            let message = format!("{name}: {error:#}");
            Some((key, Problem { origin, message }))
        });
        missing.collect()
    }

    /// Every key of the file with its value and its source.
    pub(crate) fn effective(&self) -> &Effective {
        &self.effective
    }
}

/// Reads values whose shape the loader has checked.
struct Reader<'a>(&'a Effective);

impl Reader<'_> {
    fn command(&self) -> CommandSettings {
        let value = self.0.value("command_policy.helpers");
        let helpers = value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, list)| (name.clone(), texts(list)))
            .collect();
        CommandSettings {
            allowlist: texts(self.0.value("command_policy.allowlist")),
            timeout: self.seconds("command_policy.timeout_seconds"),
            timeout_max: self.seconds("command_policy.timeout_seconds_max"),
            cpu_limit: self.text("command_policy.cpu_limit"),
            memory_limit: self.text("command_policy.memory_limit"),
            pids_limit: self.whole("command_policy.pids_limit"),
            run_as_non_root: self.flag("command_policy.run_as_non_root"),
            run_as: self.maybe("command_policy.run_as"),
            audit_retention_days: u32::try_from(self.whole("command_policy.audit_retention_days")).unwrap_or(u32::MAX),
            sandbox: self.text("command_policy.sandbox"),
            network: self.text("command_policy.network"),
            env_allow: texts(self.0.value("command_policy.env_allow")),
            require: texts(self.0.value("command_policy.require")),
            path: self.paths("command_policy.path"),
            read_paths: self.paths("command_policy.read_paths"),
            helpers,
        }
    }

    fn approval(&self) -> ApprovalSettings {
        ApprovalSettings {
            mode: self.text("approval_policy.mode"),
            timeout: self.millis("approval_policy.timeout_ms"),
            whitelist: self
                .list("approval_policy.whitelist")
                .iter()
                .map(whitelist_entry)
                .collect(),
            self_approval: self.text("approvals.self") == "allow",
            quorum: self.whole("quorum"),
            client_decides: self
                .list("approvers")
                .iter()
                .any(|approver| approver["type"] == "client"),
        }
    }

    fn audit(&self) -> AuditSettings {
        let patterns = texts(self.0.value("audit.redact_patterns"));
        AuditSettings {
            durability: self.text("audit.durability"),
            redact_patterns: patterns
                .iter()
                .filter_map(|pattern| regex::Regex::new(pattern).ok())
                .collect(),
            witness: self.maybe("audit.witness"),
        }
    }

    fn limits(&self) -> LimitSettings {
        LimitSettings {
            body_bytes: self.whole("limits.body_bytes") as usize,
            line_bytes: self.whole("limits.line_bytes") as usize,
            depth: self.whole("limits.depth") as usize,
            requests_per_second: self.0.value("limits.requests_per_second").as_f64(),
            burst: self.0.value("limits.burst").as_u64(),
            sessions_max: self.whole("limits.sessions_max") as usize,
        }
    }

    fn text(&self, path: &str) -> String {
        self.maybe(path).unwrap_or_default()
    }

    fn maybe(&self, path: &str) -> Option<String> {
        self.0.value(path).as_str().map(str::to_owned)
    }

    fn path(&self, path: &str) -> Option<PathBuf> {
        self.maybe(path).map(PathBuf::from)
    }

    fn paths(&self, path: &str) -> Vec<PathBuf> {
        texts(self.0.value(path)).into_iter().map(PathBuf::from).collect()
    }

    fn list(&self, path: &str) -> &[Json] {
        self.0.value(path).as_array().map_or(&[], Vec::as_slice)
    }

    fn flag(&self, path: &str) -> bool {
        self.0
            .value(path)
            .as_bool()
            .expect("the shape is a truth value and the default is set")
    }

    fn whole(&self, path: &str) -> u64 {
        self.0
            .value(path)
            .as_u64()
            .expect("the shape is a whole number and the default is set")
    }

    fn number(&self, path: &str) -> Option<usize> {
        self.0
            .value(path)
            .as_u64()
            .and_then(|number| usize::try_from(number).ok())
    }

    fn millis(&self, path: &str) -> Option<Duration> {
        self.0.value(path).as_u64().map(Duration::from_millis)
    }

    fn seconds(&self, path: &str) -> Duration {
        let number = self.0.value(path).as_number().and_then(shape::seconds);
        number.expect("the shape is a positive number and the default is set")
    }
}

fn texts(list: &Json) -> Vec<String> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .map(str::to_owned)
        .collect()
}

fn field(rule: &Json, name: &str) -> Option<String> {
    rule[name].as_str().map(str::to_owned)
}

fn whitelist_entry(rule: &Json) -> WhitelistEntry {
    WhitelistEntry {
        pattern: field(rule, "pattern").unwrap_or_default(),
        reason: field(rule, "reason"),
        enabled: rule["enabled"].as_bool().unwrap_or(true),
        matching: texts(&rule["match"]),
        not_matching: texts(&rule["not_match"]),
        source: field(rule, "source").unwrap_or_default(),
    }
}
