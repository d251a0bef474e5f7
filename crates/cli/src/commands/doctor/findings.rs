//! What `doctor` found, before it is printed.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use countersign_exec::probe::{LANDLOCK_PROMISES, LayerState, Probe};
use countersign_exec::{ZygoteError, obstacle_to_user, remedy_of_owner};
use countersign_gateway::policy::effective::{CommandPolicy, SandboxMode};
use countersign_gateway::policy::plan::RunAs;
use countersign_store::db;
use countersign_store::key::Key;
use rustix::fs::{Access, access};
use serde_json::{Value, json};

use crate::absent;
use crate::config::{PlaceSettings, show};
use crate::interpreters;
use crate::start::{self, Started};
use crate::wiring;

/// The user without rights that commands of a root server fall back to.
const NOBODY: u32 = 65_534;
/// A new key would prove nothing of what stands there.
const KEY_IS_GONE: &str = "it has a record, and the key that it was written with, `record-key`, is gone; put that back from where you keep it";

pub(super) struct Findings {
    pub(super) sources: Vec<String>,
    pub(super) warnings: Vec<String>,
    pub(super) state: StateDirectory,
    /// None where the record is a file in the state directory.
    pub(super) database: Option<Database>,
    pub(super) workspace: Workspace,
    pub(super) cgroups: &'static str,
    pub(super) landlock_abi: u32,
    pub(super) layers: Vec<Layer>,
    /// Why the layers could not be tried.
    pub(super) untried: Option<String>,
    /// Layers of `command_policy.require` that are not there.
    pub(super) missing: Vec<String>,
    lack_of_proc: Option<&'static str>,
    /// Secrets without which no server starts.
    secrets: Vec<String>,
}

pub(super) struct StateDirectory {
    pub(super) path: PathBuf,
    pub(super) mode: Option<u32>,
    /// No record can be kept in it.
    pub(super) is_unusable: bool,
    pub(super) advice: Option<String>,
}

pub(super) struct Database {
    /// Without its password.
    pub(super) address: String,
    /// Why no record can be kept there.
    pub(super) advice: Option<String>,
}

pub(super) struct Workspace {
    /// Where there is none, the directory of calls that name none.
    pub(super) path: PathBuf,
    pub(super) is_set: bool,
    pub(super) owner: Option<u32>,
    pub(super) runs_as: String,
    /// It is no directory.
    pub(super) is_unusable: bool,
    /// The user of `run_as` cannot be had.
    pub(super) is_without_user: bool,
    pub(super) advice: Option<String>,
}

pub(super) struct Layer {
    pub(super) name: &'static str,
    pub(super) state: LayerState,
    pub(super) required: bool,
    pub(super) sentence: String,
}

impl Findings {
    pub(super) fn of(started: &Started, probed: Result<Probe, ZygoteError>) -> Self {
        let settings = &started.settings;
        let command = &started.policy.command;
        let requires = |name: &str| command.require.iter().any(|layer| layer.as_str() == name);
        let (probed, untried) = match probed {
            Ok(probed) => (probed, None),
            Err(error) => {
                let nothing = Probe {
                    landlock_abi: 0,
                    cgroup_version: "none",
                    layers: Vec::new(),
                };
                (nothing, Some(format!("{:#}", anyhow::Error::from(error))))
            }
        };
        let layer = |status: countersign_exec::probe::LayerStatus| Layer {
            name: status.layer.name(),
            state: status.state,
            required: requires(status.layer.name()),
            sentence: status.sentence,
        };
        let layers: Vec<_> = probed.layers.into_iter().map(layer).collect();
        let is_there = |name: &str| {
            layers
                .iter()
                .any(|layer| layer.name == name && layer.state != LayerState::Unavailable)
        };
        let missing = command
            .require
            .iter()
            .map(|layer| layer.as_str())
            .filter(|name| !is_there(name));
        let cautions = interpreters::listed(&command.allowlist);
        let secrets = settings.missing_secrets(&started.surroundings).into_iter();
        let (needed, others): (Vec<_>, Vec<_>) = secrets.partition(|(key, _)| start::needs_secret(key));
        Self {
            sources: settings.sources.clone(),
            warnings: start::warnings(started)
                .chain(cautions.iter().map(|entry| interpreters::caution(entry)))
                .chain(absent::programs(settings, command))
                .chain(unbounded(&settings.places))
                .chain(others.iter().map(|(_, problem)| problem.to_string()))
                .collect(),
            state: StateDirectory::look(&settings.state_dir),
            database: settings.database.as_ref().map(|(url, _)| Database::look(url)),
            workspace: Workspace::look(
                &settings.places,
                start::obstacle_of_workspace(started),
                command,
                wiring::uid(),
            ),
            cgroups: probed.cgroup_version,
            landlock_abi: probed.landlock_abi,
            missing: missing.map(str::to_owned).collect(),
            untried,
            layers,
            lack_of_proc: start::lack_of_proc(),
            secrets: needed.iter().map(|(_, problem)| problem.to_string()).collect(),
        }
    }

    /// What stands in the way of every command, each with what to do about it.
    pub(super) fn obstacles(&self) -> Vec<String> {
        let mut obstacles = Vec::new();
        obstacles.extend(self.lack_of_proc.map(str::to_owned));
        let secrets = self.secrets.iter();
        obstacles.extend(secrets.map(|problem| format!("{problem}; `serve` does not start without it")));
        if !self.missing.is_empty() {
            obstacles.push(format!(
                "policy requires {}, which this machine lacks; calls are refused until that is mended, or taken out of \
                 `command_policy.require`",
                self.missing.join(", ")
            ));
        }
        if self.state.is_unusable {
            obstacles.push("the state directory cannot be used, and without a record nothing runs".to_owned());
        }
        if self.database.as_ref().is_some_and(|database| database.advice.is_some()) {
            obstacles.push("the database cannot be used, and without a record nothing runs".to_owned());
        }
        if self.workspace.is_unusable {
            obstacles.push("there is no workspace to run commands in".to_owned());
        }
        if self.workspace.is_without_user {
            obstacles.push("commands cannot run as the user that `command_policy.run_as` names".to_owned());
        }
        obstacles
    }

    pub(super) fn to_json(&self) -> Value {
        let layer = |layer: &Layer| json!({"name": layer.name, "state": word(layer.state), "required": layer.required, "sentence": layer.sentence});
        let promise = |(needs, promise): &(u32, &str)| json!({"needs_abi": needs, "promise": promise, "holds": self.landlock_abi >= *needs});
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "sources": self.sources,
            "state_directory": {
                "path": self.state.path,
                "exists": self.state.mode.is_some(),
                "mode": self.state.mode.map(|mode| format!("{mode:04o}")),
                "advice": self.state.advice,
            },
            "database": self.database.as_ref().map(|it| json!({"address": it.address, "advice": it.advice})),
            "workspace": {
                "path": self.workspace.path,
                "is_set": self.workspace.is_set,
                "owner_uid": self.workspace.owner,
                "commands_run_as": self.workspace.runs_as,
                "advice": self.workspace.advice,
            },
            "layers": self.layers.iter().map(layer).collect::<Vec<_>>(),
            "layers_untried": self.untried,
            "landlock": {"abi": self.landlock_abi, "promises": LANDLOCK_PROMISES.iter().map(promise).collect::<Vec<_>>()},
            "cgroups": self.cgroups,
            "warnings": self.warnings,
            "missing": self.missing,
            "obstacles": self.obstacles(),
            "ok": self.obstacles().is_empty(),
        })
    }
}

pub(super) fn word(state: LayerState) -> &'static str {
    match state {
        LayerState::Available => "available",
        LayerState::Degraded => "degraded",
        LayerState::Unavailable => "unavailable",
    }
}

impl StateDirectory {
    fn look(path: &Path) -> Self {
        let facts = fs::metadata(path);
        let mode = facts.as_ref().ok().map(|facts| facts.mode() & 0o7777);
        let obstacle = match &facts {
            Ok(facts) if !facts.is_dir() => Some("it is no directory".to_owned()),
            Ok(_) => access(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)
                .err()
                .map(|error| format!("it cannot be read and written: {error}"))
                .or_else(|| Key::is_gone(path).then(|| KEY_IS_GONE.to_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => path
                .ancestors()
                .find(|ancestor| ancestor.exists())
                .and_then(|above| Some((above, access(above, Access::WRITE_OK | Access::EXEC_OK).err()?)))
                .map(|(above, error)| format!("it cannot be made in `{}`: {error}", above.display())),
            Err(error) => Some(format!("it cannot be looked at: {error}")),
        };
        let is_open = mode.is_some_and(|mode| mode & 0o077 != 0);
        let advice = match &obstacle {
            Some(obstacle) => Some(format!("{obstacle}; `--state-dir` names another")),
            None if is_open => Some(format!(
                "other users can look into it; close it with `chmod 700 {}`",
                path.display()
            )),
            None => None,
        };
        Self {
            path: path.to_owned(),
            mode,
            is_unusable: obstacle.is_some(),
            advice,
        }
    }
}

impl Database {
    fn look(url: &str) -> Self {
        let reached = db::reach(url).map_err(anyhow::Error::from);
        Self {
            address: show::without_password(url),
            advice: reached
                .err()
                .map(|error| format!("{error:#}; `db status` tells more once it answers")),
        }
    }
}

impl Workspace {
    fn look(places: &PlaceSettings, obstacle: Option<String>, policy: &CommandPolicy, uid: u32) -> Self {
        let is_set = places.workspace_root.is_some();
        let path = places.workspace_root.as_ref().unwrap_or(&places.start);
        let facts = fs::metadata(path).ok();
        let owner = facts.as_ref().map(MetadataExt::uid);
        let mode = match policy.sandbox {
            // Where nobody may write, nobody lacks the right to.
            SandboxMode::ReadOnly => 0o777,
            SandboxMode::WorkspaceWrite | SandboxMode::DangerFullAccess => facts.as_ref().map_or(0, MetadataExt::mode),
        };
        let (runs_as, advice) = match &policy.run_as {
            Some(user) => {
                let run_as = RunAs {
                    non_root: policy.run_as_non_root,
                    user: Some(user.clone()),
                };
                (
                    format!("user `{user}`, set by `run_as`"),
                    obstacle_to_user(&run_as, uid),
                )
            }
            None => unnamed(path, owner, mode, policy.run_as_non_root, uid),
        };
        let is_without_user = policy.run_as.is_some() && advice.is_some();
        let is_unusable = obstacle.is_some() || facts.as_ref().is_none_or(|facts| !facts.is_dir());
        let advice = match facts {
            Some(facts) if facts.is_dir() => obstacle.or(advice),
            Some(_) => Some("it is not a directory; correct `workspace_root`".to_owned()),
            None => Some("it does not exist; correct `workspace_root`, or make it".to_owned()),
        };
        Self {
            path: path.to_owned(),
            is_set,
            owner,
            runs_as,
            is_unusable,
            is_without_user,
            advice,
        }
    }
}

/// Said where nothing bounds the directories that calls may name.
fn unbounded(places: &PlaceSettings) -> Option<String> {
    let is_bounded = places.workspace_root.is_some() || places.cwd_roots.is_some();
    (!is_bounded).then(|| {
        "calls may name any directory as `cwd` and write there what their user may write; `workspace_root` or \
         `ALLOWED_CWD_ROOTS` says where they may"
            .to_owned()
    })
}

/// Who commands run as when `run_as` names nobody, and what is wrong with that.
fn unnamed(path: &Path, owner: Option<u32>, mode: u32, non_root: bool, uid: u32) -> (String, Option<String>) {
    match (uid, owner) {
        (0, _) if !non_root => {
            let advice =
                "`run_as_non_root` is false, so commands have the rights of root wherever the sandbox lets them";
            ("root".to_owned(), Some(advice.to_owned()))
        }
        (0, Some(owner)) if owner != 0 => (format!("uid {owner}, the workspace's owner"), None),
        (0, _) => (
            format!("uid {NOBODY}, since root owns the workspace"),
            unwritable(path, mode),
        ),
        (uid, Some(owner)) if owner != uid && mode & 0o022 == 0 => {
            let advice =
                format!("uid {uid} does not own the workspace and cannot write it; start the server as its owner");
            (format!("uid {uid}, as the server"), Some(advice))
        }
        (uid, _) => (format!("uid {uid}, as the server"), None),
    }
}

fn unwritable(path: &Path, mode: u32) -> Option<String> {
    let is_writable = mode & 0o002 != 0;
    (!is_writable).then(|| format!("uid {NOBODY} cannot write it; {}", remedy_of_owner(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_of_root_is_explained_only_where_nobody_cannot_write_it() {
        let root = Path::new("/w");
        assert_eq!(unwritable(root, 0o40_777), None);
        let advice = unwritable(root, 0o40_755).unwrap();
        assert_eq!(
            advice,
            "uid 65534 cannot write it; give it to a user with `chown USER /w`, or name one in `command_policy.run_as` that can write it"
        );
    }
}
