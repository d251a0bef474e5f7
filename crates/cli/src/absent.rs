//! Programs, places and users that the policy names and this machine does not have: mistyped, not installed, or
//! somewhere else than commands look for them. No mistake where the file is meant for another machine.

use std::path::Path;

use countersign_exec::{Machine, obstacle_to_user};
use countersign_gateway::policy::allowlist::{Programs as _, is_builtin};
use countersign_gateway::policy::effective::CommandPolicy;
use countersign_gateway::policy::plan::RunAs;

use crate::config::Settings;

const LIST: &str = "command_policy.allowlist";
const HELPERS: &str = "command_policy.helpers";
const ROOT: &str = "workspace_root";
const USER: &str = "command_policy.run_as";
/// Among helpers, what is built in the workspace.
const WORKSPACE: &str = "workspace";

/// What is said of each of them.
pub(crate) fn programs(settings: &Settings, command: &CommandPolicy) -> Vec<String> {
    let machine = Machine::new(command.path.clone());
    let is_there = |word: &str| machine.find(word).is_some();
    let names = command.allowlist.names().iter().map(String::as_str);
    let paths = command.allowlist.paths().iter().filter_map(|path| path.to_str());
    let listed = names.filter(|name| !is_builtin(name)).chain(paths);
    let unlisted = listed.filter(|word| !is_there(word)).map(|word| (LIST, word));
    let helped = command
        .helpers
        .iter()
        .map(|(word, _)| word.as_str())
        .filter(|word| !is_there(word));
    // A path may also be a directory of helpers.
    let is_helper =
        |word: &str| word == WORKSPACE || is_there(word) || word.starts_with('/') && Path::new(word).is_dir();
    let helpers = command
        .helpers
        .iter()
        .flat_map(|(_, helpers)| helpers)
        .map(String::as_str);
    let helpers = helpers.filter(|word| !is_helper(word));
    let absent = unlisted.chain(helped.chain(helpers).map(|word| (HELPERS, word)));
    absent.map(|(key, word)| said(settings, key, word)).collect()
}

/// What is said of a workspace and of a user.
pub(crate) fn places(settings: &Settings, command: &CommandPolicy) -> Vec<String> {
    /// Only as root a server runs commands as somebody else; whether this process could does not matter here.
    const ROOT_UID: u32 = 0;
    let root = settings.places.workspace_root.as_deref().filter(|path| !path.is_dir());
    let root = root.map(|path| {
        let path = path.display();
        format!(
            "{}`{ROOT}` is `{path}`, and no such directory is on this machine",
            origin(settings, ROOT)
        )
    });
    let run_as = RunAs {
        non_root: command.run_as_non_root,
        user: command.run_as.clone(),
    };
    let obstacle = command
        .run_as
        .as_ref()
        .and_then(|_| obstacle_to_user(&run_as, ROOT_UID));
    let user = obstacle.map(|obstacle| format!("{}`{USER}`: {obstacle}", origin(settings, USER)));
    root.into_iter().chain(user).collect()
}

fn origin(settings: &Settings, key: &str) -> String {
    let origin = settings.held(key).map(|held| format!("{}: ", held.origin.lead()));
    origin.unwrap_or_default()
}

fn said(settings: &Settings, key: &str, word: &str) -> String {
    let origin = origin(settings, key);
    match word.starts_with('/') {
        true => format!("{origin}`{key}` names `{word}`, and no such program is on this machine"),
        false => format!(
            "{origin}`{key}` names `{word}`, and on this machine no such program is in `command_policy.path`; what lies elsewhere \
             is named by its whole path"
        ),
    }
}
