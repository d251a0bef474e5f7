//! Runs a plain line without a shell: the tree that policy checked is what runs.
//!
//! This code runs in a process of its own that is already confined, so files for globs and
//! redirections are opened with the command's rights, never with the server's. Programs are the
//! descriptors that policy resolved; a name that was not found is reported the way a shell does.

mod glob;
mod streams;

use std::ffi::{CString, OsString};
use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use countersign_gateway::policy::line::tree::{Command, Joint, List, Pipeline, RUNNER_BUILTINS, Tree};
use countersign_sandbox::runner::{self, Child, RunnerInput, Spawner};
use countersign_sandbox::{Outcome, Step, Unchanged};
use serde::{Deserialize, Serialize};

use streams::{Streams, in_words};

/// What travels to the runner.
#[derive(Serialize, Deserialize)]
pub(crate) struct Script {
    pub(crate) tree: Tree,
    /// One entry for each command of the tree, in order.
    pub(crate) programs: Vec<Option<ProgramRef>>,
}

/// A program among the descriptors that were passed.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ProgramRef {
    pub(crate) index: usize,
    /// What stands for `argv[0]`: for a `#!` script its interpreter and path.
    pub(crate) lead: Vec<CString>,
    pub(crate) unchanged: Unchanged,
}

const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;
/// What a shell says of more arguments than the kernel takes.
const TOO_MANY: &str = "argument list too long";

/// Runs one line; the result is the status of its last pipeline.
pub(crate) fn run(input: RunnerInput<'_>) -> i32 {
    let Ok(script) = postcard::from_bytes::<Script>(&input.payload) else {
        complain("the line did not arrive whole");
        return NOT_EXECUTABLE;
    };
    let Ok(spawner) = Spawner::new() else {
        complain("no memory to start programs");
        return NOT_EXECUTABLE;
    };
    let Some(tmp) = variable(&input.env, "TMPDIR") else {
        complain("there is no directory for temporary files");
        return NOT_EXECUTABLE;
    };
    let mut line = Line {
        tmp: OsString::from_vec(tmp).into(),
        programs: script.programs.into_iter(),
        fds: &input.programs,
        env: input.env,
        spawner,
    };
    script.tree.lists.iter().fold(0, |_, list| line.list(list))
}

struct Line<'a> {
    /// Consumed in step with the commands, run or skipped.
    programs: std::vec::IntoIter<Option<ProgramRef>>,
    fds: &'a [BorrowedFd<'a>],
    env: Vec<CString>,
    /// Where the command's own temporary files are.
    tmp: PathBuf,
    spawner: Spawner,
}

impl Line<'_> {
    fn list(&mut self, list: &List) -> i32 {
        let mut status = self.pipeline(&list.first);
        for (joint, pipeline) in &list.rest {
            let due = match joint {
                Joint::And => status == 0,
                Joint::Or => status != 0,
            };
            if due {
                status = self.pipeline(pipeline);
            } else {
                self.programs.by_ref().take(pipeline.commands.len()).for_each(drop);
            }
        }
        status
    }

    fn pipeline(&mut self, pipeline: &Pipeline) -> i32 {
        let programs: Vec<_> = self.programs.by_ref().take(pipeline.commands.len()).collect();
        if let [command] = pipeline.commands.as_slice()
            && RUNNER_BUILTINS.contains(&command.name.as_str())
        {
            return self.builtin(command);
        }
        let mut parts = Vec::with_capacity(programs.len());
        let mut input = None;
        let last = pipeline.commands.len() - 1;
        for (index, (command, program)) in pipeline.commands.iter().zip(&programs).enumerate() {
            let (output, next) = match (index < last).then(std::io::pipe).transpose() {
                Ok(pipe) => pipe.map_or((None, None), |(reader, writer)| {
                    (Some(OwnedFd::from(writer)), Some(OwnedFd::from(reader)))
                }),
                Err(error) => {
                    complain(&format!("cannot make a pipe: {error}"));
                    parts.push(Part::Done(1));
                    break;
                }
            };
            parts.push(self.start(command, program.as_ref(), input.take(), output));
            input = next;
        }
        // Every part is waited for, so that none outlives the line; the last one gives the status.
        parts.into_iter().map(Part::status).fold(0, |_, status| status)
    }

    /// Starts one command of a pipeline.
    fn start(
        &mut self,
        command: &Command,
        program: Option<&ProgramRef>,
        input: Option<OwnedFd>,
        output: Option<OwnedFd>,
    ) -> Part {
        // Before anything is opened, as in bash: `cat * > all` does not read what it writes.
        let words = glob::expand_all(&command.args);
        let Some(streams) = Streams::connect(input, output, &command.redirections, &self.tmp) else {
            return Part::Done(1);
        };
        let name = &command.name;
        if RUNNER_BUILTINS.contains(&name.as_str()) {
            return Part::Done(self.act(command, words, &streams, Where::InPipeline));
        }
        let Some(program) = program else {
            let (status, reason) = missing(name);
            streams.complain(&format!("{name}: {reason}"));
            return Part::Done(status);
        };
        let Ok(words) = words else {
            streams.complain(&format!("{name}: {TOO_MANY}"));
            return Part::Done(NOT_EXECUTABLE);
        };
        let mut argv = program.lead.clone();
        argv.extend(words.into_iter().filter_map(|word| CString::new(word).ok()));
        let started = self.spawner.spawn(&runner::Command {
            program: self.fds[program.index],
            argv: &argv,
            env: &self.env,
            stdin: streams.stdin(),
            stdout: streams.stdout(),
            stderr: streams.stderr(),
            unchanged: &program.unchanged,
        });
        match started {
            Ok(child) => Part::Running(child),
            Err(error) => {
                streams.complain(&format!("{name}: {}", reason(&error)));
                Part::Done(NOT_EXECUTABLE)
            }
        }
    }

    fn builtin(&mut self, command: &Command) -> i32 {
        let words = glob::expand_all(&command.args);
        let Some(streams) = Streams::connect(None, None, &command.redirections, &self.tmp) else {
            return 1;
        };
        self.act(command, words, &streams, Where::Here)
    }

    /// What a builtin does.
    fn act(&mut self, command: &Command, words: Words, streams: &Streams, place: Where) -> i32 {
        match command.name.as_str() {
            "false" => 1,
            "cd" => match self.change_directory(words, place) {
                Ok(()) => 0,
                Err(message) => {
                    streams.complain(&format!("cd: {message}"));
                    1
                }
            },
            _ => 0,
        }
    }

    /// Goes there, as a shell does, and says where that is.
    fn enter(&self, target: &Path) -> std::io::Result<PathBuf> {
        let now = variable(&self.env, "PWD").map(|now| PathBuf::from(OsString::from_vec(now)));
        if let Some(path) = now.and_then(|now| by_name(&now, target))
            && std::env::set_current_dir(&path).is_ok()
        {
            return Ok(path);
        }
        std::env::set_current_dir(target)?;
        std::env::current_dir()
    }

    fn change_directory(&mut self, words: Words, place: Where) -> Result<(), String> {
        let words = words.map_err(|glob::TooMany| TOO_MANY.to_owned())?;
        let target = match words.as_slice() {
            [] => variable(&self.env, "HOME").ok_or("HOME not set")?,
            [word] => word.clone(),
            _ => return Err("too many arguments".to_owned()),
        };
        let failed = |error: std::io::Error| format!("{}: {}", String::from_utf8_lossy(&target), in_words(&error));
        let path = Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&target));
        match place {
            // A part of a pipeline has a directory of its own, which ends with it.
            Where::InPipeline => std::fs::read_dir(path).map(drop).map_err(failed),
            Where::Here => {
                let now = self.enter(path).map_err(failed)?;
                let entry = [b"PWD=", std::os::unix::ffi::OsStrExt::as_bytes(now.as_os_str())].concat();
                self.env.retain(|variable| !variable.as_bytes().starts_with(b"PWD="));
                self.env.extend(CString::new(entry).ok());
                Ok(())
            }
        }
    }
}

/// Where a directory leads to a shell, which goes back by `..` the way that it came and not to the parent of what a link
/// leads to. Nothing where the way there does not exist.
fn by_name(now: &Path, target: &Path) -> Option<PathBuf> {
    let mut path = if target.is_absolute() {
        PathBuf::new()
    } else {
        now.to_owned()
    };
    for component in target.components() {
        match component {
            Component::ParentDir if !path.is_dir() => return None,
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            Component::RootDir | Component::Normal(_) | Component::Prefix(_) => path.push(component),
        }
    }
    Some(path)
}

/// The words of a command, as their patterns came out.
type Words = Result<Vec<Vec<u8>>, glob::TooMany>;

fn variable(env: &[CString], name: &str) -> Option<Vec<u8>> {
    let prefix = format!("{name}=");
    env.iter()
        .find_map(|variable| variable.as_bytes().strip_prefix(prefix.as_bytes()))
        .map(<[u8]>::to_vec)
}

#[derive(Clone, Copy)]
enum Where {
    Here,
    InPipeline,
}

/// One command of a pipeline, running or already done.
enum Part {
    Running(Child),
    Done(i32),
}

impl Part {
    fn status(self) -> i32 {
        match self {
            Self::Done(status) => status,
            Self::Running(child) => match child.wait() {
                Ok(Outcome::Code(code)) => code,
                Ok(Outcome::Signal(signal)) => 128 + signal,
                Err(_) => 1,
            },
        }
    }
}

/// What a shell says of a command that is none.
fn missing(name: &str) -> (i32, &'static str) {
    if !name.contains('/') {
        return (NOT_FOUND, "command not found");
    }
    match std::fs::metadata(name) {
        Ok(found) if found.is_dir() => (NOT_EXECUTABLE, "Is a directory"),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => (NOT_EXECUTABLE, "Permission denied"),
        Ok(_) => (NOT_EXECUTABLE, "its interpreter is missing, or it cannot be read"),
        Err(_) => (NOT_FOUND, "No such file or directory"),
    }
}

fn reason(error: &runner::SpawnError) -> String {
    match error.step {
        Step::Exec => crate::running::not_executed(error.errno),
        Step::Unchanged => crate::running::CHANGED.to_owned(),
        _ => error.to_string(),
    }
}

/// Tells the reader of standard error; if nobody reads it there is nobody to tell.
fn complain(message: &str) {
    say(runner::standard_streams()[2], message);
}

fn say(stream: BorrowedFd<'_>, message: &str) {
    if let Ok(copy) = stream.as_fd().try_clone_to_owned() {
        let _ = writeln!(std::fs::File::from(copy), "{message}");
    }
}
