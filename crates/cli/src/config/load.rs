//! From all sources to one checked value: finds them, reads them, merges them, weakest first.
//!
//! Who may do what:
//! - the operator's file sets;
//! - the project's file tightens, and sets once the operator trusted exactly this content;
//! - environment and flags set where no operator's file exists, and tighten where one does;
//! - a file named by `--config` takes the place of the operator's. If it lies inside the workspace
//!   while the operator has a file, it is one that agents can write, and counts as a project's.

use std::path::{Path, PathBuf};

use super::environment;
use super::file::{self, Layer};
use super::merge::{Effective, Hand};
use super::origin::{Origin, Problem, Problems, Source, Warning};
use super::settings::Settings;
use super::shape::Bases;
use super::surroundings::{Flags, Surroundings};
use super::trust::{self, Trusted};

/// Where the project keeps its file, below the workspace.
pub(crate) const PROJECT_FILE: &str = ".countersign/config.yaml";

/// What the sources came to, before it is given types.
pub(super) struct Gathered {
    pub(super) effective: Effective,
    pub(super) state_dir: PathBuf,
    pub(super) state_dir_origin: Origin,
    pub(super) database: Option<(String, Origin)>,
    pub(super) cwd_roots: Option<Vec<PathBuf>>,
    pub(super) operator_file: Option<PathBuf>,
    /// All sources that took part, weakest first.
    pub(super) sources: Vec<String>,
    pub(super) warnings: Vec<Warning>,
}

/// Loads the configuration; all problems come back together.
pub(crate) fn load(surroundings: &Surroundings, flags: &Flags) -> Result<Settings, Problems> {
    let mut problems = Vec::new();
    let gathered = gather(surroundings, flags, &mut problems);
    let settings = match gathered {
        Some(gathered) => Settings::build(gathered, surroundings, &mut problems),
        None => None,
    };
    match settings {
        Some(settings) if problems.is_empty() => Ok(settings),
        _ => Err(Problems(problems)),
    }
}

fn gather(surroundings: &Surroundings, flags: &Flags, problems: &mut Vec<Problem>) -> Option<Gathered> {
    let mut warnings = Vec::new();
    let state = state_dir(surroundings, flags, problems);
    let files = files(
        surroundings,
        flags,
        state.as_ref().map(|(dir, _)| dir.as_path()),
        problems,
        &mut warnings,
    );
    let operator_exists = files.iter().any(|layer| matches!(layer.source, Source::Operator(_)));

    let mut effective = Effective::defaults();
    let start = surroundings.current_dir.to_string_lossy();
    effective.set("workspace_root", serde_json::json!(start), Origin::of(Source::Default));
    for layer in &files {
        effective.apply(layer, hand_of(&layer.source, operator_exists), &mut warnings);
    }
    let mut sources: Vec<String> = files.iter().map(|layer| layer.source.to_string()).collect();
    let outside = environment::apply(
        surroundings,
        flags,
        operator_exists,
        &mut effective,
        problems,
        &mut warnings,
    );
    sources.extend(outside.sources);
    sources.insert(0, Source::Default.to_string());

    let (state_dir, state_dir_origin) = state?;
    Some(Gathered {
        effective,
        state_dir,
        state_dir_origin,
        database: outside.database,
        cwd_roots: outside.cwd_roots,
        operator_file: files.iter().find_map(|layer| match &layer.source {
            Source::Operator(path) => Some(path.clone()),
            _ => None,
        }),
        sources,
        warnings,
    })
}

fn hand_of(source: &Source, operator_exists: bool) -> Hand {
    match source {
        Source::Default | Source::Operator(_) => Hand::Sets,
        Source::Named { trusted, .. } | Source::Project { trusted, .. } if *trusted => Hand::Sets,
        Source::Named { .. } | Source::Project { .. } => Hand::Tightens,
        Source::Environment(_) | Source::Flag(_) if operator_exists => Hand::Tightens,
        Source::Environment(_) | Source::Flag(_) => Hand::Sets,
    }
}

/// The state directory for these flags and this environment.
pub(crate) fn find_state_dir(surroundings: &Surroundings, flags: &Flags) -> Result<PathBuf, Problems> {
    let mut problems = Vec::new();
    state_dir(surroundings, flags, &mut problems)
        .map(|(dir, _)| dir)
        .ok_or(Problems(problems))
}

fn state_dir(surroundings: &Surroundings, flags: &Flags, problems: &mut Vec<Problem>) -> Option<(PathBuf, Origin)> {
    let flag = flags
        .state_dir
        .as_ref()
        .map(|dir| (dir.clone(), Source::Flag("--state-dir".to_owned())));
    let variable = || {
        let dir = surroundings.variable("COUNTERSIGN_STATE_DIR")?;
        Some((
            PathBuf::from(dir),
            Source::Environment("COUNTERSIGN_STATE_DIR".to_owned()),
        ))
    };
    let default = || surroundings.default_state_dir().map(|dir| (dir, Source::Default));
    match flag.or_else(variable).or_else(default) {
        Some((dir, source)) => Some((surroundings.current_dir.join(dir), Origin::of(source))),
        None => {
            let message = "there is no home directory for the state directory; give `--state-dir`".to_owned();
            problems.push(Problem {
                origin: Origin::of(Source::Default),
                message,
            });
            None
        }
    }
}

/// The files that take part, weakest first.
fn files(
    surroundings: &Surroundings,
    flags: &Flags,
    state_dir: Option<&Path>,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Warning>,
) -> Vec<Layer> {
    let here = &surroundings.current_dir;
    let operator = |path: &Path, problems: &mut Vec<Problem>| {
        read(path, |path, _| Source::Operator(path), surroundings, here, problems)
    };
    let mut own_problems = Vec::new();
    let own = surroundings
        .operator_file()
        .and_then(|path| operator(&path, &mut own_problems));
    let named = flags
        .config
        .clone()
        .or_else(|| surroundings.variable("COUNTERSIGN_CONFIG").map(PathBuf::from));
    let named = named.map(|path| here.join(path));
    let replaces = named
        .as_ref()
        .is_some_and(|path| own.is_none() || !inside(path, &workspace(own.as_ref(), here)));

    let mut layers = Vec::new();
    match &named {
        Some(path) if replaces => layers.extend(required(path, problems, operator)),
        _ => {
            problems.append(&mut own_problems);
            layers.extend(own);
        }
    }
    let project = workspace(layers.first(), here);
    let trusted = state_dir
        .map(|dir| trusted(dir, &project, problems, warnings))
        .unwrap_or_default();
    if let Some(path) = named.filter(|_| !replaces) {
        let source = |path: PathBuf, bytes: &[u8]| Source::Named {
            trusted: trusted.holds(&path, bytes),
            path,
        };
        layers.extend(required(&path, problems, |path, problems| {
            read(path, source, surroundings, &project, problems)
        }));
    }
    let path = project.join(PROJECT_FILE);
    if !layers
        .iter()
        .any(|layer| layer.source.file().is_some_and(|other| same(other, &path)))
    {
        let source = |path: PathBuf, bytes: &[u8]| Source::Project {
            trusted: trusted.holds(&path, bytes),
            path,
        };
        layers.extend(read(&path, source, surroundings, &project, problems));
    }
    layers
}

/// The workspace that the operator's file names, else the current directory.
fn workspace(operator: Option<&Layer>, here: &Path) -> PathBuf {
    let entry = operator.and_then(|layer| layer.entry("workspace_root"));
    entry
        .and_then(|entry| entry.node.text())
        .map_or_else(|| here.to_owned(), PathBuf::from)
}

/// A file that was asked for by name must be there.
fn required(
    path: &Path,
    problems: &mut Vec<Problem>,
    read: impl FnOnce(&Path, &mut Vec<Problem>) -> Option<Layer>,
) -> Option<Layer> {
    let before = problems.len();
    let layer = read(path, problems);
    if layer.is_none() && problems.len() == before {
        problems.push(Problem {
            origin: Origin::of(Source::Operator(path.to_owned())),
            message: "does not exist; `countersign --config FILE config init` writes one".to_owned(),
        });
    }
    layer
}

/// Reads one file, if it is there. The digest that trust looks at is that of the bytes parsed.
fn read(
    path: &Path,
    source: impl FnOnce(PathBuf, &[u8]) -> Source,
    surroundings: &Surroundings,
    project: &Path,
    problems: &mut Vec<Problem>,
) -> Option<Layer> {
    match file::fetch(path) {
        Ok(None) => None,
        Ok(Some(bytes)) => {
            let file = path.parent().unwrap_or(path).to_owned();
            let bases = Bases {
                file,
                project: project.to_owned(),
                home: surroundings.home.clone(),
            };
            Some(file::parse(&bytes, &source(path.to_owned(), &bytes), &bases, problems))
        }
        Err(message) => {
            problems.push(Problem {
                origin: Origin::of(Source::Operator(path.to_owned())),
                message,
            });
            None
        }
    }
}

/// The list of trusted files, unless agents could have written it themselves. Where nobody can look, nothing is
/// trusted; whoever needs the record hears of it.
fn trusted(state_dir: &Path, workspace: &Path, problems: &mut Vec<Problem>, warnings: &mut Vec<Warning>) -> Trusted {
    let mut doubt = |reason: String| {
        warnings.push(Warning {
            origin: Origin::of(Source::Default),
            key: "--state-dir".to_owned(),
            reason,
        });
        Trusted::default()
    };
    if let Err(error) = state_dir.join(trust::FILE_NAME).try_exists() {
        return doubt(format!(
            "no file is trusted, since `{}` cannot be looked into: {error}",
            state_dir.display()
        ));
    }
    match Trusted::read(state_dir) {
        Ok(trusted) if !trusted.is_empty() && inside(state_dir, workspace) => {
            doubt("trusted files are not believed, since the state directory is inside the workspace".to_owned())
        }
        Ok(trusted) => trusted,
        Err(message) => {
            let origin = Origin::of(Source::Operator(state_dir.to_owned()));
            problems.push(Problem { origin, message });
            Trusted::default()
        }
    }
}

/// Whether a path lies in a directory, links followed as far as the path exists.
pub(crate) fn inside(path: &Path, directory: &Path) -> bool {
    let real = |path: &Path| {
        path.ancestors().find_map(|part| {
            let rest = path.strip_prefix(part).ok()?;
            part.canonicalize().ok().map(|real| real.join(rest))
        })
    };
    match (real(path), real(directory)) {
        (Some(path), Some(directory)) => path.starts_with(directory),
        _ => false,
    }
}

fn same(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}
