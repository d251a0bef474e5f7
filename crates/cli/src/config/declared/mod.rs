//! Files that declare tools: which there are, who may have written them, and what they say.
//!
//! They are named by `tool_files`, which only the operator or a trusted file sets. One that lies in the
//! workspace can be written by the very agents that would call its tools, so it counts only as long as the
//! operator trusts exactly its content.

mod executor;
mod reading;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use countersign_gateway::tools::declared::{DeclaredTool, DeclaredTools};
use serde_json::Value as Json;

use super::file;
use super::load::inside;
use super::merge::Effective;
use super::origin::{Origin, Problem, Source, Warning};
use super::shape::Faults;
use super::surroundings::Surroundings;
use super::tree::{self, Node, Value};
use super::trust::{Trusted, sha256};

/// What the tool files came to.
#[derive(Clone, Default, Debug)]
pub(crate) struct ToolFiles {
    pub(crate) tools: DeclaredTools,
    /// The files that took part, with what they held.
    pub(crate) sources: Vec<String>,
    /// Files and directories to look at when something may have changed.
    pub(crate) watched: Vec<PathBuf>,
    /// What services are asked with.
    pub(crate) secrets: Vec<String>,
}

/// What one file is read with.
struct Desk<'a> {
    surroundings: &'a Surroundings,
    /// Where each tool was declared first.
    known: BTreeMap<String, String>,
    /// Services may answer later.
    has_callbacks: bool,
    secrets: Vec<String>,
}

/// Reads every file that `tool_files` names; problems are those of all of them.
pub(super) fn load(
    effective: &Effective,
    surroundings: &Surroundings,
    state_dir: &Path,
    workspace: &Path,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Warning>,
) -> ToolFiles {
    let held = effective.held("tool_files");
    let base = held.origin.source.file().and_then(Path::parent);
    let base = base.unwrap_or(&surroundings.current_dir);
    let mut found = ToolFiles::default();
    let mut desk = Desk {
        surroundings,
        known: BTreeMap::new(),
        has_callbacks: !effective.value("callbacks.token").is_null(),
        secrets: Vec::new(),
    };
    let mut tools = Vec::new();
    for pattern in held.value.as_array().into_iter().flatten().filter_map(Json::as_str) {
        let paths = match matching(pattern, base, surroundings, &mut found.watched) {
            Ok(paths) => paths,
            Err(message) => {
                problems.push(Problem {
                    origin: held.origin.clone(),
                    message,
                });
                continue;
            }
        };
        for path in paths {
            let source = Source::Operator(path.clone());
            let bytes = match file::fetch(&path) {
                Ok(Some(bytes)) => bytes,
                Ok(None) => {
                    problems.push(missing(&source));
                    continue;
                }
                Err(message) => {
                    problems.push(Problem {
                        origin: Origin::of(source),
                        message,
                    });
                    continue;
                }
            };
            if inside(&path, workspace) && !is_trusted(state_dir, workspace, &path, &bytes) {
                let reason = "a tool file in the workspace can be written by agents, so its tools are left out; \
                              trust it as it is by `countersign config trust FILE`";
                warnings.push(Warning {
                    origin: Origin::of(source),
                    key: "tool_files".to_owned(),
                    reason: reason.to_owned(),
                });
                continue;
            }
            found
                .sources
                .push(format!("tool file {} sha256:{}", path.display(), &sha256(&bytes)[..16]));
            tools.extend(read(&path, &bytes, &mut desk, problems));
        }
    }
    found.tools = DeclaredTools::new(tools);
    found.secrets = desk.secrets;
    found
}

/// Whether a file declares tools, by its look; then its problems, read by itself.
pub(crate) fn problems_of(path: &Path, surroundings: &Surroundings) -> Option<Vec<Problem>> {
    let bytes = file::fetch(path).ok()??;
    let text = std::str::from_utf8(&bytes).ok()?;
    let tools = tree::read(text).ok()?.get("tools").map(|tools| tools.value.clone());
    if !matches!(tools, Some(Value::List(_))) {
        return None;
    }
    let mut desk = Desk {
        surroundings,
        known: BTreeMap::new(),
        has_callbacks: true,
        secrets: Vec::new(),
    };
    let mut problems = Vec::new();
    read(path, &bytes, &mut desk, &mut problems);
    Some(problems)
}

fn read(path: &Path, bytes: &[u8], desk: &mut Desk<'_>, problems: &mut Vec<Problem>) -> Vec<DeclaredTool> {
    let mut faults = Faults::new();
    let mut tools = Vec::new();
    match std::str::from_utf8(bytes) {
        Err(_) => faults.push((None, "is not UTF-8 text".to_owned())),
        Ok(text) => match tree::read(text) {
            Err(error) => {
                let found = error.faults(|rest, faults| drop(reading::tools(rest, path, desk, faults)));
                faults.extend(found);
            }
            Ok(tree) => tools = reading::tools(&tree, path, desk, &mut faults),
        },
    }
    faults.sort_by_key(|(at, _)| *at);
    let source = Source::Operator(path.to_owned());
    problems.extend(faults.into_iter().map(|(at, message)| Problem {
        origin: Origin::at(&source, at),
        message,
    }));
    tools
}

fn missing(source: &Source) -> Problem {
    Problem {
        origin: Origin::of(source.clone()),
        message: "does not exist; `tool_files` names it".to_owned(),
    }
}

/// The files that a pattern names, in the order of their names. A `*` stands in the last part only.
fn matching(
    pattern: &str,
    base: &Path,
    surroundings: &Surroundings,
    watched: &mut Vec<PathBuf>,
) -> Result<Vec<PathBuf>, String> {
    let path = match (pattern.strip_prefix("~/"), &surroundings.home) {
        (Some(rest), Some(home)) => home.join(rest),
        (Some(_) | None, _) => base.join(pattern),
    };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let directory = path.parent().unwrap_or(base).to_owned();
    if directory.to_string_lossy().contains('*') {
        return Err(format!("`{pattern}`: a `*` may stand in the name of the file only"));
    }
    watched.push(directory.clone());
    let Some(name) = name.filter(|name| name.contains('*')) else {
        watched.push(path.clone());
        return Ok(vec![path]);
    };
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) => {
            return Err(format!(
                "`{pattern}`: `{}` cannot be read: {error}",
                directory.display()
            ));
        }
    };
    let fits = |entry: &std::fs::DirEntry| {
        countersign_gateway::policy::merge::glob(&name, &entry.file_name().to_string_lossy())
    };
    let mut found: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(fits)
        .map(|entry| entry.path())
        .collect();
    found.sort();
    watched.extend(found.iter().cloned());
    Ok(found)
}

/// A list of trusted files that agents could write themselves is believed by nobody.
fn is_trusted(state_dir: &Path, workspace: &Path, path: &Path, bytes: &[u8]) -> bool {
    !inside(state_dir, workspace) && Trusted::read(state_dir).is_ok_and(|trusted| trusted.holds(path, bytes))
}

/// The text of a field that must be text.
fn text<'n>(node: &'n Node, field: &str, faults: &mut Faults) -> Option<&'n str> {
    match node.text() {
        Some(text) => Some(text),
        None => {
            faults.push((node.at, format!("`{field}` must be text")));
            None
        }
    }
}

/// A whole number of at least one.
fn whole(node: &Node, field: &str, most: u64, faults: &mut Faults) -> Option<u64> {
    let number = match &node.value {
        Value::Number(number) => number.as_u64().filter(|number| (1..=most).contains(number)),
        Value::Null | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => None,
    };
    if number.is_none() {
        faults.push((node.at, format!("`{field}` must be a whole number from 1 to {most}")));
    }
    number
}

fn flag(node: &Node, field: &str, faults: &mut Faults) -> Option<bool> {
    match &node.value {
        Value::Bool(flag) => Some(*flag),
        Value::Null | Value::Number(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => {
            faults.push((node.at, format!("`{field}` must be true or false")));
            None
        }
    }
}

/// One of a closed list of words.
fn word<T: Copy>(node: &Node, field: &str, words: &[(&str, T)], faults: &mut Faults) -> Option<T> {
    let said = node.text().unwrap_or_default();
    let found = words.iter().find(|(word, _)| *word == said).map(|(_, value)| *value);
    if found.is_none() {
        let list: Vec<_> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
        faults.push((node.at, format!("`{field}` must be one of {}", list.join(", "))));
    }
    found
}

/// Every key must be one of these.
fn keys(node: &Node, place: &str, known: &[&str], faults: &mut Faults) {
    if !matches!(node.value, Value::Map(_)) {
        faults.push((node.at, format!("`{place}` must be a map of keys to values")));
    }
    for pair in node.pairs().iter().filter(|pair| !known.contains(&&*pair.name)) {
        let path = format!("{place}.{}", pair.name);
        faults.push((pair.at, super::shape::unknown(&path, &pair.name, known.iter().copied())));
    }
}

#[cfg(test)]
mod tests;
