//! What is hidden, by the names that a second mount gives it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::bench::{As, Bench, is_root};
use crate::web::{Web, legacy};

/// Who the server is, and whether it can cover anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Root,
    Ordinary,
    /// Root of a container that may not mount.
    Bare,
}

/// A server in mounts of its own, which end with it.
struct Apart {
    web: Web,
    session: String,
}

impl Apart {
    fn start(bench: &Bench, kind: Kind) -> Self {
        let served = bench.command();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]);
        if kind == Kind::Bare {
            command.args(["setpriv", "--bounding-set", "-sys_admin", "--"]);
        }
        command
            .arg(served.get_program())
            .args(served.get_args())
            .args(["serve", "--listen", "127.0.0.1:0"])
            .env_clear()
            .envs(served.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .current_dir(bench.work());
        let web = Web::of(&mut command);
        let session = web.session(json!({}));
        Self { web, session }
    }

    fn bind(&self, what: &Path, place: &Path) {
        fs::create_dir_all(place).unwrap();
        self.there(&[Path::new("mount"), Path::new("--bind"), what, place]);
    }

    fn there(&self, words: &[&Path]) {
        let mut enter = Command::new("nsenter");
        enter.args(["--target", &self.web.pid().to_string(), "--mount"]);
        assert!(enter.args(words).status().unwrap().success(), "{words:?}");
    }

    /// What came of reading a file somewhere.
    fn read(&self, cwd: &Path, file: &str) -> Value {
        let arguments = json!({"file": "cat", "args": [file], "cwd": cwd});
        let call = json!({"name": "execute_process", "arguments": arguments});
        let (_, answer) = self.web.post("/mcp", &self.session, &legacy(1, "tools/call", call));
        answer["result"]["structuredContent"].clone()
    }

    #[track_caller]
    fn refuses(&self, cwd: &Path, file: &str) {
        let result = self.read(cwd, file);
        assert_eq!(result["error_code"], "CWD_NOT_ALLOWED", "{}: {result}", cwd.display());
    }

    /// Covered where anything can be, and refused where not.
    #[track_caller]
    fn hides(&self, kind: Kind, cwd: &Path, file: &str) {
        let result = self.read(cwd, file);
        let code = match kind {
            Kind::Root | Kind::Ordinary => "COMMAND_EXIT_NON_ZERO",
            Kind::Bare => "CWD_NOT_ALLOWED",
        };
        assert_eq!(result["error_code"], code, "{file}: {result}");
        assert!(!result.to_string().contains("the secret"), "{file}: {result}");
    }

    #[track_caller]
    fn shows(&self, cwd: &Path, file: &str) {
        let result = self.read(cwd, file);
        assert_eq!(result["stdout"], "no secret", "{file}: {result}");
    }
}

/// A home that everybody may read, with a secret in it, and a state directory beside it.
fn furnished(kind: Kind) -> (Bench, PathBuf) {
    let user = if kind == Kind::Ordinary {
        As::Ordinary
    } else {
        As::Itself
    };
    let bench = Bench::of(user).env("ALLOWED_COMMANDS", "cat");
    let home = bench.path("home");
    fs::create_dir_all(home.join(".ssh/deep")).unwrap();
    for (file, text) in [
        (".ssh/key", "the secret"),
        (".ssh/deep/key", "the secret"),
        ("plain", "no secret"),
    ] {
        fs::write(home.join(file), text).unwrap();
    }
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
    bench.file("plain", "no secret");
    (bench, home)
}

fn each(test: impl Fn(Kind)) {
    if !is_root() {
        println!("only root mounts");
        return;
    }
    for kind in [Kind::Root, Kind::Ordinary, Kind::Bare] {
        println!("server is: {kind:?}");
        test(kind);
    }
}

#[test]
fn a_directory_of_another_name_opens_nothing_hidden() {
    each(|kind| {
        let (bench, home) = furnished(kind);
        let server = Apart::start(&bench, kind);
        server.shows(&bench.work(), "plain");
        // While it runs, each above, at and below what is hidden.
        let (above, at, below) = (bench.path("data/home"), bench.path("data/ssh"), bench.path("data/deep"));
        server.bind(&home, &above);
        server.bind(&home.join(".ssh"), &at);
        server.bind(&home.join(".ssh/deep"), &below);
        server.hides(kind, &above, ".ssh/key");
        for (cwd, file) in [
            (above.join(".ssh"), "key"),
            (above.join(".ssh/deep"), "key"),
            (at.clone(), "key"),
            (at.join("deep"), "key"),
            (below.clone(), "key"),
        ] {
            server.refuses(&cwd, file);
        }
        if kind != Kind::Bare {
            server.shows(&above, "plain");
        }
        server.there(&[Path::new("umount"), &below]);
        fs::write(below.join("plain"), "no secret").unwrap();
        server.shows(&below, "plain");
    });
}

#[test]
fn a_hidden_place_that_is_mounted_into_the_workspace_stays_hidden() {
    each(|kind| {
        let (bench, home) = furnished(kind);
        let work = bench.work();
        let server = Apart::start(&bench, kind);
        server.shows(&work, "plain");
        fs::write(bench.state().join("kept"), "the secret").unwrap();
        fs::set_permissions(bench.state(), fs::Permissions::from_mode(0o755)).unwrap();
        server.bind(&home, &work.join("home"));
        server.hides(kind, &work, "home/.ssh/key");
        if kind != Kind::Bare {
            server.shows(&work, "home/plain");
        }
        server.bind(&home.join(".ssh/deep"), &work.join("deep"));
        server.hides(kind, &work, "deep/key");
        // With everything in it, the workspace too.
        server.bind(bench.path("work").parent().unwrap(), &work.join("all"));
        server.hides(kind, &work, "all/state/kept");
        server.hides(kind, &work, "all/home/.ssh/key");
        server.refuses(&work.join("home/.ssh"), "key");
    });
}
