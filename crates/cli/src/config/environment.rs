//! Environment and flags: S3's two variables, the callback token, the address to listen on.
//!
//! `ALLOWED_COMMANDS` alone makes a whole policy: its programs, mode `never`, and no workspace, each
//! unless configured otherwise. The last two are looser than the defaults, so they are not implied
//! where an operator's file exists. Set but empty, it names no program, and none may run.

use std::path::PathBuf;

use countersign_store::postgres::address;
use serde_json::json;

use super::file::Entry;
use super::keys;
use super::merge::{Effective, Hand};
use super::origin::{Origin, Problem, Problems, Source, Warning};
use super::shape::{self, Bases};
use super::surroundings::{Flags, Surroundings};
use super::tree::Node;

const ALLOWED_COMMANDS: &str = "ALLOWED_COMMANDS";
const ALLOWED_CWD_ROOTS: &str = "ALLOWED_CWD_ROOTS";
const CALLBACK_TOKEN: &str = "COUNTERSIGN_CALLBACK_TOKEN";
const DATABASE: &str = "COUNTERSIGN_DATABASE";

/// What does not have a key in files.
pub(super) struct Outside {
    pub(super) database: Option<(String, Origin)>,
    pub(super) cwd_roots: Option<Vec<PathBuf>>,
    pub(super) sources: Vec<String>,
}

/// Lets environment and flags have their say, in this order.
pub(super) fn apply(
    surroundings: &Surroundings,
    flags: &Flags,
    operator_exists: bool,
    effective: &mut Effective,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Warning>,
) -> Outside {
    let hand = if operator_exists { Hand::Tightens } else { Hand::Sets };
    let mut sources = Vec::new();
    if let Some(list) = surroundings.variables.get(ALLOWED_COMMANDS) {
        sources.push(variable(ALLOWED_COMMANDS).to_string());
        allowed_commands(list, hand, effective, problems, warnings);
    }
    let cwd_roots = cwd_roots(surroundings);
    if cwd_roots.is_some() {
        sources.push(variable(ALLOWED_CWD_ROOTS).to_string());
    }
    if let Some(token) = surroundings.variables.get(CALLBACK_TOKEN) {
        let origin = Origin::of(variable(CALLBACK_TOKEN));
        if token.trim().is_empty() {
            problems.push(Problem {
                origin,
                message: "must not be empty; unset it to keep the callback routes off".to_owned(),
            });
        } else {
            // By name: the value itself has no business in a value that is printed.
            give(
                "callbacks.token",
                &json!({"env": CALLBACK_TOKEN}),
                &origin.source,
                Hand::Tightens,
                effective,
                warnings,
            );
        }
    }
    if let Some(address) = &flags.listen {
        listen(address, operator_exists, effective, problems, warnings);
        sources.push(Source::Flag("--listen".to_owned()).to_string());
    }
    Outside {
        database: database(surroundings, flags, problems),
        cwd_roots,
        sources,
    }
}

fn allowed_commands(
    list: &str,
    hand: Hand,
    effective: &mut Effective,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Warning>,
) {
    let source = variable(ALLOWED_COMMANDS);
    let warn = |key: &str, reason: &str| Warning {
        origin: Origin::of(source.clone()),
        key: key.to_owned(),
        reason: reason.to_owned(),
    };
    let mut programs: Vec<&str> = Vec::new();
    for program in list.split(',').map(str::trim).filter(|program| !program.is_empty()) {
        if !shape::program(program) {
            let message = format!("must name programs by a bare name or an absolute path, not `{program}`");
            problems.push(Problem {
                origin: Origin::of(source.clone()),
                message,
            });
        } else if !programs.contains(&program) {
            programs.push(program);
        }
    }
    if programs.contains(&"*") {
        programs = vec!["*"];
    }
    give(
        "command_policy.allowlist",
        &json!(programs),
        &source,
        hand,
        effective,
        warnings,
    );
    match hand {
        Hand::Sets => {
            for (key, implied) in [
                ("approval_policy.mode", json!("never")),
                ("workspace_root", json!(null)),
            ] {
                if effective.is_default(key) {
                    effective.set(key, implied, Origin::of(source.clone()));
                }
            }
        }
        Hand::Tightens if effective.is_default("approval_policy.mode") => {
            let reason = "it does not imply `never` where an operator's file exists; write the mode there";
            warnings.push(warn("approval_policy.mode", reason));
        }
        Hand::Tightens => {}
    }
}

/// Unset and empty mean no restriction. A list of nothing but commas is neither, and allows nothing.
fn cwd_roots(surroundings: &Surroundings) -> Option<Vec<PathBuf>> {
    let list = surroundings
        .variable(ALLOWED_CWD_ROOTS)
        .filter(|list| !list.trim().is_empty())?;
    Some(
        list.split(',')
            .map(str::trim)
            .filter(|root| !root.is_empty())
            .map(PathBuf::from)
            .collect(),
    )
}

/// The flag is typed by who starts the server, so it holds unless the operator's file itself names
/// an address; a listener that is not on loopback still needs authentication.
fn listen(
    address: &str,
    operator_exists: bool,
    effective: &mut Effective,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Warning>,
) {
    let source = Source::Flag("--listen".to_owned());
    let bases = Bases {
        file: PathBuf::new(),
        project: PathBuf::new(),
        home: None,
    };
    let mut faults = Vec::new();
    let key = keys::find("listen").expect("the table has `listen`");
    let Some(node) = key
        .shape
        .check("listen", &Node::from_json(&json!(address)), &bases, &mut faults)
    else {
        problems.extend(faults.into_iter().map(|(_, message)| Problem {
            origin: Origin::of(source.clone()),
            message,
        }));
        return;
    };
    let named = matches!(effective.held("listen").origin.source, Source::Operator(_));
    let hand = if operator_exists && named {
        Hand::Tightens
    } else {
        Hand::Sets
    };
    give("listen", &node.to_json(), &source, hand, effective, warnings);
}

/// The address of the database for these flags and this environment.
pub(crate) fn find_database(surroundings: &Surroundings, flags: &Flags) -> Result<Option<String>, Problems> {
    let mut problems = Vec::new();
    let found = database(surroundings, flags, &mut problems);
    if problems.is_empty() {
        Ok(found.map(|(url, _)| url))
    } else {
        Err(Problems(problems))
    }
}

/// Understood before anything starts; otherwise the record might be looked for in a file.
fn database(surroundings: &Surroundings, flags: &Flags, problems: &mut Vec<Problem>) -> Option<(String, Origin)> {
    let (url, origin) = named_database(surroundings, flags)?;
    if let Err(error) = address::check(&url) {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        problems.push(Problem {
            origin: origin.clone(),
            message: format!("{error}{}", cause.unwrap_or_default()),
        });
    }
    Some((url, origin))
}

fn named_database(surroundings: &Surroundings, flags: &Flags) -> Option<(String, Origin)> {
    let flag = flags
        .database
        .clone()
        .map(|url| (url, Origin::of(Source::Flag("--database".to_owned()))));
    flag.or_else(|| {
        surroundings
            .variable(DATABASE)
            .map(|url| (url.to_owned(), Origin::of(variable(DATABASE))))
    })
}

fn variable(name: &str) -> Source {
    Source::Environment(name.to_owned())
}

fn give(
    path: &str,
    value: &serde_json::Value,
    source: &Source,
    hand: Hand,
    effective: &mut Effective,
    warnings: &mut Vec<Warning>,
) {
    let key = keys::find(path).expect("callers name keys of the table");
    let entry = Entry {
        key,
        at: None,
        node: Node::from_json(value),
    };
    effective.apply_entry(&entry, source, hand, warnings);
}
