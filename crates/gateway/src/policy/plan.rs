//! What will run, exactly, once it is cleared. Made by `decide` only; the executor adds nothing to it
//! but the private directories.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::allowlist::FoundProgram;
use super::effective::{Layer, Network, ResourceLimits, SandboxMode};
use super::line::tree::Tree;
use super::places::{self, Place};
use super::sought::once_each;

/// A decided command.
#[derive(Clone, Debug)]
pub struct Plan {
    pub act: PlannedAct,
    pub place: Place,
    /// Variables besides the ones every command gets.
    pub env: Vec<(String, String)>,
    pub input: Option<String>,
    /// It reads what its caller passes on while it runs.
    pub is_fed: bool,
    pub timeout: Duration,
    pub sandbox: SandboxMode,
    pub network: Network,
    pub exec: ExecRights,
    /// Run git without anything the workspace could have configured.
    pub neutral_git: bool,
    pub limits: ResourceLimits,
    pub identity: RunAs,
    pub require: Vec<Layer>,
    pub read_paths: Vec<PathBuf>,
    /// What must not be seen, by whatever name. By which ones it can be reached is looked up when the plan is run.
    pub hidden: Arc<[PathBuf]>,
    pub search_path: Vec<PathBuf>,
}

impl Plan {
    /// The files that would run, in order and each once: for a line that needs a shell that shell, then what the line
    /// names. A builtin, or a name that no program has, stays as it is written.
    pub fn program_names(&self) -> Vec<String> {
        let text = |program: &FoundProgram| program.path.to_string_lossy().into_owned();
        match &self.act {
            PlannedAct::Process { program, .. } => vec![text(program)],
            PlannedAct::Tree { tree, programs } => {
                let named = tree.commands().zip(programs);
                once_each(named.map(|(command, program)| program.as_ref().map_or_else(|| command.name.clone(), text)))
            }
            PlannedAct::Shell { bash, named, .. } => {
                once_each(std::iter::once(text(bash)).chain(named.iter().cloned()))
            }
        }
    }

    /// Whether the command may read what lies at a path, as far as no secret does.
    pub fn reads(&self, path: &Path) -> bool {
        let is_opened = |root| places::is_within(path, root);
        self.place.opened_root(self.sandbox).is_some_and(is_opened)
            || self.read_paths.iter().any(|read| places::is_within(path, read))
            || places::READABLE_BY_ALL
                .iter()
                .any(|read| places::is_within(path, Path::new(read)))
    }

    /// The first file, of those that must run, which lies where the command may not read.
    pub fn out_of_reach(&self) -> Option<&Path> {
        if self.sandbox == SandboxMode::DangerFullAccess {
            return None;
        }
        let programs: Vec<&FoundProgram> = match &self.act {
            PlannedAct::Process { program, .. } => vec![program],
            PlannedAct::Tree { programs, .. } => programs.iter().flatten().collect(),
            PlannedAct::Shell { bash, .. } => vec![bash],
        };
        let mut files = programs
            .into_iter()
            .flat_map(|program| std::iter::once(&program.path).chain(&program.interpreter_chain));
        files.find(|file| !self.reads(file)).map(PathBuf::as_path)
    }
}

#[derive(Clone, Debug)]
pub enum PlannedAct {
    /// One program by descriptor.
    Process { program: FoundProgram, argv: Vec<String> },
    /// A plain line, run by the confined runner. `programs` has one entry for each command of the
    /// tree, in order; none for the runner's own builtins and for names that no program has.
    Tree {
        tree: Tree,
        programs: Vec<Option<FoundProgram>>,
    },
    /// A line that needs a shell.
    Shell {
        bash: FoundProgram,
        line: String,
        /// What the line names, for whoever reads of it; empty where it could not be read. What runs is bash's to find.
        named: Vec<String>,
    },
}

/// Which programs the kernel lets the command start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExecRights {
    Any,
    Only {
        programs: Vec<PathBuf>,
        /// Programs in the workspace too.
        workspace: bool,
    },
}

/// Who the command runs as.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunAs {
    pub non_root: bool,
    pub user: Option<String>,
}
