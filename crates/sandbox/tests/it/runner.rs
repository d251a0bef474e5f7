//! A function instead of a program: the same confinement, and programs started by descriptor from inside.

use std::io::Write;
use std::os::fd::AsFd;

use countersign_sandbox::runner::{Command, RunnerInput, Spawner, standard_streams, wait_all};
use countersign_sandbox::{Body, Launch, Outcome, Reply, Step, Unchanged, directory, wire};

use crate::setting::{ALL, in_settings};
use crate::support::{Server, c, control, find, launch, only, run as run_launch, send};

/// The other end: what the tests below ask for by name.
pub(crate) fn run(name: &str, input: &RunnerInput<'_>) -> i32 {
    let [stdin, stdout, stderr] = standard_streams();
    let mut spawner = Spawner::new().unwrap();
    match name {
        "memfd" => crate::attacks::memory_file(),
        "deep-hooks" => crate::files::deep_hooks(),
        "pipeline" => {
            let (reader, writer) = std::io::pipe().unwrap();
            let first = Command {
                program: input.programs[0],
                argv: &[c("printf"), c("b\\na\\n")],
                env: &input.env,
                stdin,
                stdout: writer.as_fd(),
                stderr,
                unchanged: &Unchanged::default(),
            };
            let first = spawner.spawn(&first).unwrap();
            drop(writer);
            let second = Command {
                program: input.programs[1],
                argv: &[c("sort")],
                env: &input.env,
                stdin: reader.as_fd(),
                stdout,
                stderr,
                unchanged: &Unchanged::default(),
            };
            let second = spawner.spawn(&second).unwrap();
            drop(reader);
            let outcomes = wait_all(&[first, second]).unwrap();
            if outcomes == [Outcome::Code(0), Outcome::Code(0)] {
                0
            } else {
                1
            }
        }
        "descriptors" => {
            let ls = Command {
                program: input.programs[0],
                argv: &[c("ls"), c("/proc/self/fd")],
                env: &input.env,
                stdin,
                stdout,
                stderr,
                unchanged: &Unchanged::default(),
            };
            spawner.spawn(&ls).unwrap().wait().unwrap();
            0
        }
        "redirect" => {
            let refused = std::fs::write("../outside/new", "x").is_err();
            std::fs::write("inside", "x").unwrap();
            std::env::set_current_dir("/usr").unwrap();
            i32::from(!refused)
        }
        "crossed" => {
            // The streams swap places, which must not lose one.
            let ls = Command {
                program: input.programs[0],
                argv: &[c("sh"), c("-c"), c("echo out; echo err >&2")],
                env: &input.env,
                stdin,
                stdout: stderr,
                stderr: stdout,
                unchanged: &Unchanged::default(),
            };
            spawner.spawn(&ls).unwrap().wait().unwrap();
            0
        }
        "unlisted" => {
            let id = Command {
                program: input.programs[0],
                argv: &[c("id")],
                env: &input.env,
                stdin,
                stdout,
                stderr,
                unchanged: &Unchanged::default(),
            };
            let error = spawner.spawn(&id).unwrap_err();
            i32::from((error.step, error.errno) != (Step::Exec, libc::EACCES))
        }
        "panic" => {
            let _ = std::io::stdout().write_all(b"before");
            std::panic::resume_unwind(Box::new("on purpose"))
        }
        other => other.parse().unwrap_or(99),
    }
}

fn order(server: &Server, payload: &str) -> Launch {
    Launch {
        body: Body::Run {
            payload: payload.into(),
        },
        ..launch(&find("true"), &server.workspace, &["unused"])
    }
}

#[test]
fn a_runner_starts_programs_and_joins_them() {
    in_settings("runner::a_runner_starts_programs_and_joins_them", ALL, |setting| {
        let server = Server::start(setting);
        let keeper = server.keeper(&server.profile());
        let (printf, sort, ls, sh) = (find("printf"), find("sort"), find("ls"), find("sh"));
        let done = run_launch(
            &keeper,
            &order(&server, "pipeline"),
            &[printf.executable(), sort.executable()],
        );
        assert_eq!(done.succeeded(), "a\nb\n");
        let done = run_launch(
            &keeper,
            &order(&server, "descriptors"),
            &[ls.executable(), sort.executable()],
        );
        assert_eq!(done.succeeded(), "0\n1\n2\n3\n");
        let done = run_launch(&keeper, &order(&server, "crossed"), &[sh.executable()]);
        assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("err\n", "out\n"));
    });
}

#[test]
fn a_runner_has_the_rights_of_a_command() {
    in_settings("runner::a_runner_has_the_rights_of_a_command", ALL, |setting| {
        let server = Server::start(setting);
        let mut profile = server.profile();
        run_launch(&server.keeper(&profile), &order(&server, "redirect"), &[]).succeeded();
        assert!(server.workspace.join("inside").exists() && !server.outside.join("new").exists());
        profile.exec_list = true;
        let id = find("id");
        let strict = Launch {
            exec: only(&[&find("true")]),
            ..order(&server, "unlisted")
        };
        run_launch(&server.keeper(&profile), &strict, &[id.executable()]).succeeded();
    });
}

#[test]
fn a_runner_waits_at_the_gate_too() {
    in_settings("runner::a_runner_waits_at_the_gate_too", ALL, |setting| {
        let server = Server::start(setting);
        let keeper = server.keeper(&server.profile());
        let cwd = directory::open(&server.workspace).unwrap();
        let pending = send(&keeper, &order(&server, "redirect"), &cwd.fd, &[]);
        control(&keeper, wire::ABORT);
        assert_eq!(pending.finish(&keeper).reply, Reply::Aborted);
        assert!(!server.workspace.join("inside").exists());
        let _pending = send(&keeper, &order(&server, "redirect"), &cwd.fd, &[]);
        drop(keeper);
        server.zygote.finish().unwrap();
        assert!(!server.workspace.join("inside").exists());
    });
}

#[test]
fn a_runner_that_fails_is_a_failed_command() {
    in_settings("runner::a_runner_that_fails_is_a_failed_command", ALL, |setting| {
        let server = Server::start(setting);
        let keeper = server.keeper(&server.profile());
        assert_eq!(run_launch(&keeper, &order(&server, "42"), &[]).code(), Some(42));
        assert_eq!(run_launch(&keeper, &order(&server, "panic"), &[]).code(), Some(125));
    });
}
