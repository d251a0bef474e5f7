//! Finding the file behind a program's name and opening it once, so that what was found is what runs.
//!
//! A `#!` script cannot be executed by descriptor without leaving that descriptor open in the interpreter,
//! so its interpreter is what gets executed, with the script's path as an argument, and the script's identity
//! is checked again just before. So is that of a program that others may write to while somebody is asked.

mod elf;

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::directory;
use crate::landlock::SYSTEM;
use crate::launch::ScriptCheck;

/// Interpreters that are scripts themselves are followed this far, like the kernel does.
const SCRIPT_DEPTH_MAX: usize = 4;
/// The kernel looks at no more of a script's first line.
const FIRST_LINE_BYTES: usize = 256;

/// What makes a file the same file, with the same contents: whoever writes to it can set the time of that back, but not
/// the time at which it was last changed in any way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    pub device: u64,
    pub inode: u64,
    pub bytes: u64,
    pub modified_s: i64,
    pub modified_ns: i64,
    pub changed_s: i64,
    pub changed_ns: i64,
}

impl Identity {
    pub fn of(metadata: &fs::Metadata) -> Identity {
        Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified_s: metadata.mtime(),
            modified_ns: metadata.mtime_nsec(),
            changed_s: metadata.ctime(),
            changed_ns: metadata.ctime_nsec(),
        }
    }
}

/// A program that was found and opened.
#[derive(Debug)]
pub struct Program {
    file: File,
    /// Canonical path.
    pub path: PathBuf,
    pub identity: Identity,
    /// The dynamic loader that the program asks for.
    pub loader: Option<PathBuf>,
    /// For a script, what it names on its first line.
    pub interpreter: Option<Box<Interpreter>>,
}

/// The program and argument of a `#!` line.
#[derive(Debug)]
pub struct Interpreter {
    pub program: Program,
    pub argument: Option<CString>,
}

/// Why a name leads to no program.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("program `{name}` is not on the search path")]
    NotFound { name: String },
    #[error("`{}` is not an executable file", path.display())]
    NotExecutable { path: PathBuf },
    #[error("cannot open program `{}`", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("script `{}` names no usable interpreter", path.display())]
    Interpreter { path: PathBuf },
}

/// Resolves a plain name in these directories; the first executable file wins.
pub fn find(name: &str, directories: &[PathBuf]) -> Result<Program, ProgramError> {
    if name.is_empty() || name.contains('/') || name == "." || name == ".." {
        return Err(ProgramError::NotFound { name: name.to_owned() });
    }
    for directory in directories.iter().filter(|directory| directory.is_absolute()) {
        match open(&directory.join(name)) {
            Ok(program) => return Ok(program),
            Err(ProgramError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(ProgramError::NotExecutable { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Err(ProgramError::NotFound { name: name.to_owned() })
}

/// Opens the program at a path.
pub fn open(path: &Path) -> Result<Program, ProgramError> {
    open_at_depth(path, 0)
}

fn open_at_depth(path: &Path, depth: usize) -> Result<Program, ProgramError> {
    let fail = |source| ProgramError::Open {
        path: path.to_owned(),
        source,
    };
    let Some(Executable {
        mut file,
        metadata,
        path: canonical,
    }) = open_executable(path).map_err(fail)?
    else {
        return Err(ProgramError::NotExecutable { path: path.to_owned() });
    };
    let mut head = Vec::with_capacity(FIRST_LINE_BYTES);
    file.by_ref()
        .take(FIRST_LINE_BYTES as u64)
        .read_to_end(&mut head)
        .map_err(fail)?;
    let interpreter = match parse_first_line(&head) {
        None => None,
        Some(_) if depth == SCRIPT_DEPTH_MAX => {
            return Err(ProgramError::Interpreter { path: canonical });
        }
        Some((interpreter, argument)) => {
            let program = open_at_depth(&interpreter, depth + 1).map_err(|_| ProgramError::Interpreter {
                path: canonical.clone(),
            })?;
            Some(Box::new(Interpreter { program, argument }))
        }
    };
    let loader = elf::loader(&file, &head);
    Ok(Program {
        file,
        path: canonical,
        identity: Identity::of(&metadata),
        loader,
        interpreter,
    })
}

/// Opens a file for reading that is one and may be executed; none for anything else. A pipe would keep us waiting for
/// whoever writes to it, and some devices act on being opened, so it is looked at before it is opened for good. A script
/// names its interpreter, so whoever writes scripts chooses what is tried here.
fn open_executable(path: &Path) -> io::Result<Option<Executable>> {
    let (found, path) = directory::open_named(path)?;
    let found = File::from(found);
    let metadata = found.metadata()?;
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        return Ok(None);
    }
    // The very file that was looked at, whatever has its name by now. Nobody waits for whoever holds a lease on it.
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(format!("/proc/self/fd/{}", found.as_raw_fd()))?;
    Ok(Some(Executable { file, metadata, path }))
}

/// A file that may be executed.
struct Executable {
    file: File,
    metadata: fs::Metadata,
    /// Canonical.
    path: PathBuf,
}

/// The interpreter and its one argument, if these bytes begin a script.
fn parse_first_line(head: &[u8]) -> Option<(PathBuf, Option<CString>)> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = without_blanks(line);
    let end = line
        .iter()
        .position(|byte| matches!(byte, b' ' | b'\t'))
        .unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(end);
    let argument = without_blanks(argument);
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(interpreter));
    let argument = (!argument.is_empty()).then(|| CString::new(argument).ok()).flatten();
    path.is_absolute().then_some((path, argument))
}

/// Blanks and tabs are what the kernel takes off. A carriage return, as editors of other systems leave it, is a part of
/// the interpreter's name to it, and so to us.
fn without_blanks(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

impl Program {
    /// The file to execute: the program itself or, for a script, the interpreter at the end of the chain.
    pub fn executable(&self) -> BorrowedFd<'_> {
        match &self.interpreter {
            None => self.file.as_fd(),
            Some(interpreter) => interpreter.program.executable(),
        }
    }

    /// The canonical path of that file.
    pub fn executable_path(&self) -> &Path {
        match &self.interpreter {
            None => &self.path,
            Some(interpreter) => interpreter.program.executable_path(),
        }
    }

    /// The identity of that file.
    pub fn executable_identity(&self) -> Identity {
        match &self.interpreter {
            None => self.identity,
            Some(interpreter) => interpreter.program.executable_identity(),
        }
    }

    /// The arguments to execute it with, made from the ones meant for the program.
    pub fn arguments(&self, argv: Vec<CString>) -> Vec<CString> {
        let Some(interpreter) = &self.interpreter else {
            return argv;
        };
        let script = CString::new(self.path.as_os_str().as_bytes()).unwrap_or_default();
        let name = CString::new(interpreter.program.path.as_os_str().as_bytes()).unwrap_or_default();
        let mut full = vec![name];
        full.extend(interpreter.argument.clone());
        full.push(script);
        full.extend(argv.into_iter().skip(1));
        interpreter.program.arguments(full)
    }

    /// The scripts that must be checked just before the execution: none for a program that is no script.
    pub fn script_checks(&self) -> Vec<ScriptCheck> {
        let Some(interpreter) = &self.interpreter else {
            return Vec::new();
        };
        let own = CString::new(self.path.as_os_str().as_bytes()).map(|path| ScriptCheck {
            path,
            identity: self.identity,
        });
        own.into_iter().chain(interpreter.program.script_checks()).collect()
    }

    /// Every file that must be executable for this program to run: itself, its loader, and the same of its
    /// interpreters. A script that starts with `env` also runs the program that `env` is told to find.
    pub fn exec_paths(&self, directories: &[PathBuf]) -> Vec<PathBuf> {
        let mut paths = vec![self.path.clone()];
        paths.extend(self.loader.as_deref().and_then(loader_of_the_system));
        if let Some(interpreter) = &self.interpreter {
            paths.extend(interpreter.program.exec_paths(directories));
            if interpreter.program.path.file_name().is_some_and(|name| name == "env") {
                let words = interpreter
                    .argument
                    .iter()
                    .flat_map(|argument| argument.to_str().unwrap_or("").split_whitespace());
                let named = words
                    .map(|word| word.trim_matches(['"', '\'']))
                    .find(|word| !word.starts_with('-') && !word.contains('='));
                if let Some(Ok(program)) = named.map(|name| find(name, directories)) {
                    paths.extend(program.exec_paths(directories));
                }
            }
        }
        paths
    }
}

/// A loader that lies among the machine's own files. Any other is a name that whoever wrote the program chose, of a file
/// that commands would be given to read.
fn loader_of_the_system(loader: &Path) -> Option<PathBuf> {
    let real = directory::real_name(loader).ok()?;
    SYSTEM.iter().any(|place| real.starts_with(place)).then_some(real)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bin() -> Vec<PathBuf> {
        vec!["/usr/bin".into(), "/bin".into()]
    }

    #[test]
    fn a_name_is_found_on_the_given_path_only() {
        let ls = find("ls", &bin()).unwrap();
        assert!(ls.path.is_absolute());
        assert!(
            ls.loader.as_ref().is_some_and(|loader| loader.exists()),
            "{:?}",
            ls.loader
        );
        for name in ["./ls", "/bin/ls", "", "..", "no-such-program-here"] {
            assert!(
                matches!(find(name, &bin()), Err(ProgramError::NotFound { .. })),
                "{name}"
            );
        }
        assert!(find("ls", &["relative".into()]).is_err());
    }

    #[test]
    fn a_program_does_not_have_any_file_opened_as_its_loader() {
        let directory = tempfile::Builder::new()
            .prefix("l")
            .rand_bytes(4)
            .tempdir_in("/tmp")
            .unwrap();
        let secret = directory.path().join("key");
        fs::write(&secret, "the secret").unwrap();
        let known = open(Path::new("/usr/bin/true")).unwrap().loader.unwrap();
        let (known, other) = (known.as_os_str().as_bytes(), secret.as_os_str().as_bytes());
        assert!(other.len() <= known.len());
        let mut bytes = fs::read("/usr/bin/true").unwrap();
        let at = bytes.windows(known.len()).position(|window| window == known).unwrap();
        bytes[at..at + known.len()].fill(0);
        bytes[at..at + other.len()].copy_from_slice(other);
        let program = directory.path().join("program");
        fs::write(&program, bytes).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let program = open(&program).unwrap();
        assert_eq!(program.loader.as_deref(), Some(secret.as_path()));
        assert_eq!(program.exec_paths(&bin()), std::slice::from_ref(&program.path));
        let system = find("ls", &bin()).unwrap();
        assert_eq!(system.exec_paths(&bin()).len(), 2);
    }

    #[test]
    fn a_script_is_run_by_its_interpreter() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("script");
        fs::write(&path, "#!/usr/bin/env -S sh -e\necho\n").unwrap();
        assert!(matches!(open(&path), Err(ProgramError::NotExecutable { .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let script = open(&path).unwrap();
        let argv = script.arguments(vec![c"script".into(), c"one".into()]);
        let canonical = CString::new(fs::canonicalize(&path).unwrap().as_os_str().as_bytes()).unwrap();
        let env = fs::canonicalize("/usr/bin/env").unwrap();
        assert_eq!(
            argv,
            [
                CString::new(env.as_os_str().as_bytes()).unwrap(),
                c"-S sh -e".into(),
                canonical,
                c"one".into()
            ]
        );
        assert_eq!(script.script_checks().len(), 1);
        let sh = fs::canonicalize("/bin/sh").unwrap();
        assert!(script.exec_paths(&bin()).contains(&sh));
        assert!(script.exec_paths(&bin()).contains(&env));
    }

    #[test]
    fn a_script_without_an_interpreter_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("script");
        fs::write(&path, "#!/no/such/interpreter\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(open(&path), Err(ProgramError::Interpreter { .. })));
    }

    #[test]
    fn nobody_waits_for_a_pipe_that_is_named_as_an_interpreter() {
        let directory = tempfile::tempdir().unwrap();
        let (script, pipe) = (directory.path().join("script"), directory.path().join("pipe"));
        let made = std::process::Command::new("mkfifo")
            .args(["-m", "755"])
            .arg(&pipe)
            .status();
        assert!(made.unwrap().success());
        fs::write(&script, format!("#!{}\n", pipe.display())).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let (told, heard) = std::sync::mpsc::channel();
        std::thread::spawn(move || drop(told.send((open(&pipe), open(&script)))));
        let (of_pipe, of_script) = heard.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
        assert!(matches!(of_pipe, Err(ProgramError::NotExecutable { .. })));
        assert!(matches!(of_script, Err(ProgramError::Interpreter { .. })));
    }

    #[test]
    fn first_lines_are_read_like_the_kernel_does() {
        let check = |line: &[u8], expected: Option<(&str, Option<&str>)>| {
            let expected = expected
                .map(|(path, argument)| (PathBuf::from(path), argument.map(|text| CString::new(text).unwrap())));
            assert_eq!(parse_first_line(line), expected, "{line:?}");
        };
        check(b"#!/bin/sh\n", Some(("/bin/sh", None)));
        check(b"#! \t/bin/sh -e  -u \nrest", Some(("/bin/sh", Some("-e  -u"))));
        check(b"#!/bin/sh\r\n", Some(("/bin/sh\r", None)));
        check(b"#!/bin/sh -e\r\n", Some(("/bin/sh", Some("-e\r"))));
        check(b"#!sh\n", None);
        check(b"#!\n", None);
        check(b"\x7fELF", None);
    }
}
