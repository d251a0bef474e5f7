//! `config init`: a file with every key, its default and what it means, ready to be edited.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::{Value as Json, json};

use super::keys::{KEYS, Key};
use super::surroundings::Surroundings;
use super::toolchains::{self, Proposal};
use super::yaml::flow;
use crate::edited::{Found, Keep};

const HEAD: &str = "\
# Countersign's configuration. Values are the defaults; what is commented out is unset.
# `countersign config show` prints what is in force and where each value comes from.
# A project's .countersign/config.yaml can make this stricter, never looser,
# unless `countersign config trust FILE` trusted it.
";

/// What to do with a file that is already there.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Existing {
    Keep,
    Replace,
}

/// The text, with proposals for the toolchains found on the `PATH`.
pub(crate) fn text(surroundings: &Surroundings) -> String {
    let proposal = toolchains::look(surroundings);
    let mut text = HEAD.to_owned();
    let mut section = "";
    for key in KEYS {
        let (inside, _) = key.split();
        if inside != section || inside.is_empty() {
            text.push('\n');
        }
        if inside != section && !inside.is_empty() {
            text.push_str(inside);
            text.push_str(":\n");
        }
        section = inside;
        // Writing to a string cannot fail.
        let _ = write_key(&mut text, key, &proposal);
    }
    text
}

/// Writes the file for its owner alone, as a whole: a server may read it at any moment. Answers with the copy of what was
/// there.
pub(crate) fn write(path: &Path, text: &str, existing: Existing) -> anyhow::Result<Option<PathBuf>> {
    let shown = path.display();
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .with_context(|| format!("cannot make `{}`", dir.display()))?;
    }
    if existing == Existing::Keep && fs::symlink_metadata(path).is_ok() {
        bail!(
            "`{shown}` is there already and was left as it is; edit it, or write over it by `countersign config init --force`"
        );
    }
    Found::look(path)?.replace(text, Keep::Private)
}

fn write_key(text: &mut String, key: &Key, proposal: &Proposal) -> std::fmt::Result {
    let (section, name) = key.split();
    let indent = if section.is_empty() { "" } else { "  " };
    writeln!(text, "{indent}# {}", key.about)?;
    let default: Json = serde_json::from_str(key.default).expect("a test reads every default of the table");
    match proposed(key.path, &default, proposal) {
        Some(value) => {
            writeln!(
                text,
                "{indent}# proposed for {}; take out what agents should not use",
                proposal.found.join(", ")
            )?;
            writeln!(text, "{indent}{name}: {}", flow(&value))
        }
        None if default.is_null() => writeln!(text, "{indent}# {name}: {}", key.example),
        None => writeln!(text, "{indent}{name}: {}", flow(&default)),
    }
}

/// The value to write instead of the default, where a toolchain asks for one.
fn proposed(path: &str, default: &Json, proposal: &Proposal) -> Option<Json> {
    match path {
        "command_policy.path" if !proposal.path.is_empty() => {
            let known = default.as_array().cloned().unwrap_or_default();
            Some(
                known
                    .into_iter()
                    .chain(proposal.path.iter().map(|dir| json!(dir)))
                    .collect(),
            )
        }
        "command_policy.read_paths" if !proposal.read_paths.is_empty() => Some(json!(proposal.read_paths)),
        "command_policy.helpers" if !proposal.helpers.is_empty() => Some(Json::Object(
            proposal
                .helpers
                .iter()
                .map(|(name, list)| (name.clone(), json!(list)))
                .collect(),
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, Settings, load, show};

    fn bare(home: &Path) -> Surroundings {
        Surroundings {
            variables: Default::default(),
            current_dir: "/usr".into(),
            home: Some(home.into()),
            other_homes: Vec::new(),
        }
    }

    fn loaded(surroundings: &Surroundings, text: &str) -> Settings {
        write(&surroundings.operator_file().unwrap(), text, Existing::Replace).unwrap();
        load(surroundings, &Flags::default()).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
    }

    fn values(settings: &Settings) -> Vec<Json> {
        let shown = show::as_json(settings);
        shown["values"]
            .as_object()
            .unwrap()
            .values()
            .map(|held| held["value"].clone())
            .collect()
    }

    #[test]
    fn what_init_writes_changes_nothing() {
        let (dir, empty) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let written = loaded(&bare(dir.path()), &text(&bare(dir.path())));
        let defaults = load(&bare(empty.path()), &Flags::default()).unwrap();
        assert_eq!(values(&written), values(&defaults));
        assert!(written.warnings.is_empty());
    }

    #[test]
    fn every_key_is_there_and_loads_when_uncommented() {
        let dir = tempfile::tempdir().unwrap();
        let text = text(&bare(dir.path()));
        let uncommented: String = text
            .lines()
            .map(|line| {
                let name = |key: &Key| {
                    line.trim_start()
                        .starts_with(&format!("# {}: {}", key.split().1, key.example))
                };
                let unset = KEYS.iter().any(|key| key.default == "null" && name(key));
                format!(
                    "{}\n",
                    if unset {
                        line.replacen("# ", "", 1)
                    } else {
                        line.to_owned()
                    }
                )
            })
            .collect();
        let settings = loaded(&bare(dir.path()), &uncommented);
        for (path, held) in settings.effective().iter() {
            assert_ne!(held.origin.to_string(), "default", "{path}");
        }
    }

    #[test]
    fn proposals_of_this_machine_load() {
        let dir = tempfile::tempdir().unwrap();
        let mut here = Surroundings::of_this_process().unwrap();
        here.variables
            .retain(|name, _| ["PATH", "CARGO_HOME", "RUSTUP_HOME", "GOPATH"].contains(&name.as_str()));
        let proposed = text(&here);
        loaded(&bare(dir.path()), &proposed);
    }

    #[test]
    fn a_file_is_written_over_only_when_asked() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b.yaml");
        write(&path, "one", Existing::Keep).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let refusal = write(&path, "two", Existing::Keep).unwrap_err().to_string();
        assert!(
            refusal.contains("is there already") && refusal.contains("--force"),
            "{refusal}"
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
        let copy = write(&path, "two", Existing::Replace).unwrap().expect("a copy");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(std::fs::read_to_string(copy).unwrap(), "one", "nothing is lost");
    }
}
