//! What a line names and where a call wants to work, for whoever reads of it later. Nothing is decided here, so what was
//! refused can be told as well: its programs need not be allowed, its directory need not exist.

use std::path::{Path, PathBuf};

use super::allowlist::{Programs, is_builtin};
use super::decide::Surroundings;
use super::effective::EffectivePolicy;
use super::line::{self, Line};
use super::places;
use super::planning;
use crate::tools::exec::request::{Act, CommandRequest};

/// What a call that does not run was about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sought {
    /// Of a line that could be read; in the order of the text, each once.
    pub programs: Vec<String>,
    /// Absolute, and canonical where there is such a directory.
    pub cwd: PathBuf,
}

/// Looks at a request that policy, or something before it, refused.
pub fn sought(policy: &EffectivePolicy, request: &CommandRequest, around: &Surroundings<'_>) -> Sought {
    let wanted = places::wanted(&policy.places, request.cwd.as_deref());
    let cwd = around.directories.open(&wanted).map_or(wanted, |open| open.path);
    let programs = match &request.act {
        Act::Line(text) => line::read(text, planning::BOUNDS).map(|line| named(&line, &cwd, around.programs)),
        Act::Argv { .. } => Ok(Vec::new()),
    };
    Sought {
        programs: programs.unwrap_or_default(),
        cwd,
    }
}

/// The commands of a line: the files they mean, where that is known. A builtin of bash, a function of the line and a
/// name that no program has stay as they are written; a name that is computed while the line runs is none yet.
pub(super) fn named(line: &Line, cwd: &Path, programs: &dyn Programs) -> Vec<String> {
    let mut commands: Vec<_> = line
        .commands
        .iter()
        .filter_map(|command| Some((command.position, command.name.known()?)))
        .collect();
    commands.sort_by_key(|(position, _)| *position);
    // Behind `cd` a relative name means another file than it does here.
    let moves = commands.iter().any(|(_, name)| ["cd", "pushd", "popd"].contains(name));
    let is_function = |name: &str| line.functions.iter().any(|function| function.name == name);
    let stays = |name: &str| is_builtin(name) || is_function(name) || moves && is_relative(name);
    let file = |name: &str| match stays(name) {
        true => None,
        false => planning::find(name, cwd, programs),
    };
    once_each(commands.into_iter().map(|(_, name)| match file(name) {
        Some(found) => found.path.to_string_lossy().into_owned(),
        None => name.to_owned(),
    }))
}

/// The names in their order, without those that came before.
pub(super) fn once_each(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    names.filter(|name| seen.insert(name.clone())).collect()
}

fn is_relative(name: &str) -> bool {
    name.contains('/') && !name.starts_with('/')
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::policy::allowlist::Allowlist;
    use crate::policy::explain::tests::{Without, explained};
    use crate::policy::standing::tests::{World, policy};
    use crate::tools::exec::request::{CommandTool, read};

    #[test]
    fn a_line_names_its_programs_in_order_and_each_once() {
        for (line, expected) in [
            ("ls | wc; ls", &["/usr/bin/ls", "/usr/bin/wc"][..]),
            ("cd a && cd b", &["cd"]),
            (
                "for i in 1 2; do ls; cat; ls; done",
                &["/usr/bin/bash", "/usr/bin/ls", "/usr/bin/cat"],
            ),
            (
                "if ls x; then cat y; fi | cat",
                &["/usr/bin/bash", "/usr/bin/ls", "/usr/bin/cat"],
            ),
            ("ls $(git status)", &["/usr/bin/bash", "/usr/bin/ls", "/usr/bin/git"]),
            // What the shell does itself, what the line defines, and what has no name yet.
            ("x=1; echo $x; $x", &["/usr/bin/bash", "echo"]),
            ("f() { ls; }; f", &["/usr/bin/bash", "/usr/bin/ls", "f"]),
            ("x=1; ./a", &["/usr/bin/bash", "/work/./a"]),
            ("x=1; cd b; ./a", &["/usr/bin/bash", "cd", "./a"]),
            ("x=1; bash y", &["/usr/bin/bash"]),
        ] {
            let plan = explained(&policy(), &World, json!({"command": line})).plan;
            assert_eq!(plan.expect("it is planned").program_names(), expected, "{line}");
        }
        let deep = format!("{}ls{}", "(".repeat(30), ")".repeat(30));
        let plan = explained(&policy(), &World, json!({"command": deep})).plan;
        assert_eq!(plan.expect("it is planned").program_names(), ["/usr/bin/bash"]);
    }

    #[test]
    fn what_is_refused_is_told_with_its_programs_and_its_whole_path() {
        let mut policy = policy();
        policy.command.allowlist = Allowlist::from_entries(&["ls"]).expect("a list");
        let environment = BTreeMap::new();
        let around = Surroundings {
            programs: &World,
            directories: &Without("/work/gone"),
            environment: &environment,
        };
        let check = |arguments: serde_json::Value, programs: &[&str], cwd: &str| {
            let fields = arguments.as_object().expect("an object");
            let request = read(CommandTool::ExecuteCommand, fields).expect("readable");
            let found = sought(&policy, &request, &around);
            assert_eq!(found.programs, programs, "{arguments}");
            assert_eq!(found.cwd, Path::new(cwd), "{arguments}");
        };
        check(
            json!({"command": "ls | id; rm x"}),
            &["/usr/bin/ls", "/usr/bin/id", "/usr/bin/rm"],
            "/work",
        );
        check(json!({"command": "ls (", "cwd": "gone"}), &[], "/work/gone");
        check(json!({"command": "ls", "cwd": "/etc"}), &["/usr/bin/ls"], "/etc");
    }
}
