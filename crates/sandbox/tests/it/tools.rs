//! Ordinary tools still work: a sandbox that breaks them gets turned off.

use countersign_sandbox::{ExecRights, Launch, Network, program};

use crate::setting::{ALL, WITH_NAMESPACES, in_settings, skip};
use crate::support::{Done, Server, c, launch, path_directories, run};

/// Runs a line with a private home, if the tool is installed.
fn with_home(server: &Server, tool: &str, line: &str) -> Option<Done> {
    if program::find(tool, &path_directories()).is_err() {
        skip(tool, "not installed");
        return None;
    }
    let profile = server.profile();
    let sh = crate::support::find("sh");
    let mut order = Launch {
        exec: ExecRights::Any,
        ..launch(&sh, &server.workspace, &["sh", "-ec", line])
    };
    order
        .env
        .push(c(format!("HOME={}", profile.tmp.as_ref().unwrap().display())));
    order
        .env
        .push(c(format!("TMPDIR={}", profile.tmp.as_ref().unwrap().display())));
    Some(run(&server.keeper(&profile), &order, &[sh.executable()]))
}

#[test]
fn git_makes_a_repository_and_a_commit() {
    in_settings("tools::git_makes_a_repository_and_a_commit", ALL, |setting| {
        let server = Server::start(setting);
        let line = "git init -q . && git config user.email a@b && git config user.name n && echo x > f && git add f \
                    && git commit -qm one && git status --short && git log --format=%s && git gc -q";
        if let Some(done) = with_home(&server, "git", line) {
            assert_eq!(done.succeeded(), "one\n");
        }
    });
}

#[test]
fn python_has_pools_of_processes() {
    in_settings("tools::python_has_pools_of_processes", WITH_NAMESPACES, |setting| {
        let server = Server::start(setting);
        let line = "python3 -c 'import multiprocessing as m, tempfile, ctypes\nwith m.Pool(2) as p: print(p.map(abs, [-1, -2]))\ntempfile.TemporaryFile().write(b\"x\")'";
        if let Some(done) = with_home(&server, "python3", line) {
            assert_eq!(done.succeeded(), "[1, 2]\n");
        }
    });
}

#[test]
fn a_compiler_builds_what_then_runs() {
    in_settings("tools::a_compiler_builds_what_then_runs", ALL, |setting| {
        let server = Server::start(setting);
        let line =
            "echo 'int puts(const char*); int main(void) { puts(\"built\"); return 0; }' > m.c && cc -o m m.c && ./m";
        if let Some(done) = with_home(&server, "cc", line) {
            assert_eq!(done.succeeded(), "built\n");
        }
    });
}

#[test]
fn an_allowed_network_reaches_a_server_on_this_machine() {
    in_settings(
        "tools::an_allowed_network_reaches_a_server_on_this_machine",
        ALL,
        |setting| {
            let server = Server::start(setting);
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let mut profile = server.profile();
            profile.network = Network::Allow;
            let Ok(bash) = program::find("bash", &path_directories()) else {
                return skip("bash", "not installed");
            };
            let line = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected");
            let order = launch(&bash, &server.workspace, &["bash", "-c", &line]);
            assert_eq!(
                run(&server.keeper(&profile), &order, &[bash.executable()]).succeeded(),
                "connected\n"
            );
            profile.network = Network::Deny;
            run(&server.keeper(&profile), &order, &[bash.executable()]).refused("connected");
        },
    );
}
