//! Temporary directories where others can write too.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use crate::bench::Bench;
use crate::client::{Server, eventually};

/// The directories below one, itself included.
fn directories(below: &Path) -> Vec<PathBuf> {
    let mut found = vec![below.to_owned()];
    let inner = fs::read_dir(below).unwrap().map(|entry| entry.unwrap().path());
    found.extend(inner.filter(|it| it.is_dir()).flat_map(|it| directories(&it)));
    found
}

#[test]
fn a_command_takes_no_rights_to_its_directories_from_the_server() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "*");
        let other = bench.dir("other");
        let mut server = Server::start(&bench);
        server
            .line("chmod 000 \"$(dirname \"$(dirname \"$TMPDIR\")\")\" \"$(dirname \"$TMPDIR\")\"; true")
            .ok();
        let there = |server: &mut Server| {
            server.call(
                "execute_command",
                json!({"command": "touch \"$TMPDIR/x\"", "cwd": other}),
            )
        };
        there(&mut server).ok();
        there(&mut Server::start(&bench)).ok();
    });
}

#[test]
fn a_command_decides_nothing_about_directories_that_are_made_later() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "*");
        let other = bench.dir("other");
        let mut server = Server::start(&bench);
        // What is made in a directory with this has no rights at all.
        let nothing = "import os, struct\n\
                       rights = struct.pack('<I', 2) + b''.join(struct.pack('<HHI', who, 0, 0xffffffff) for who in (1, 4, 0x20))\n\
                       own = os.environ['TMPDIR']\n\
                       for place in (own, os.path.dirname(own), os.path.dirname(os.path.dirname(own)), os.path.dirname(os.environ['HOME'])):\n\
                       \x20try: os.setxattr(place, 'system.posix_acl_default', rights)\n\
                       \x20except OSError as error: print(error)\n";
        server.process("python3", &["-c", nothing]).ok();
        server.line("mkdir \"$TMPDIR/d\" && ls \"$TMPDIR/d\"").ok();
        let there = |server: &mut Server| {
            server.call(
                "execute_command",
                json!({"command": "mkdir \"$TMPDIR/d\"; ls \"$TMPDIR/d\" && touch \"$HOME/x\"", "cwd": other}),
            )
        };
        there(&mut server).ok();
        there(&mut Server::start(&bench)).ok();
    });
}

#[test]
fn a_command_sees_nothing_of_what_other_servers_of_the_user_keep_for_theirs() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "ls,cat,mv");
        let (mut first, mut second) = (Server::start(&bench), Server::start(&bench));
        second.line("ls").ok();
        let tmp = bench.path("tmp");
        let of_second = format!("{}-", second.pid());
        let theirs = directories(&tmp)
            .into_iter()
            .find(|it| it.ends_with("tmp-0") && it.to_str().unwrap().contains(&of_second))
            .unwrap();
        // It is emptied behind the answer to the call.
        eventually("what is put there stays", || {
            fs::write(theirs.join("kept"), "the secret").unwrap();
            std::thread::sleep(Duration::from_millis(200));
            theirs.join("kept").exists()
        });
        fs::set_permissions(&theirs, fs::Permissions::from_mode(0o777)).unwrap();
        let around = theirs.parent().unwrap();
        for (program, args) in [
            ("cat", vec![theirs.join("kept")]),
            ("ls", vec![theirs.clone()]),
            ("mv", vec![theirs.clone(), tmp.join("moved")]),
            ("mv", vec![around.to_owned(), tmp.join("moved")]),
        ] {
            let outcome = first.call("execute_process", json!({"file": program, "args": args, "cwd": tmp}));
            assert!(!outcome.text.contains("the secret"), "{}", outcome.text);
            assert!(
                matches!(outcome.status(), "failed" | "rejected"),
                "{program}: {}",
                outcome.text
            );
        }
        assert!(theirs.join("kept").exists());
        assert!(first.end().success() && second.end().success());
        bench.until_tidy();
    });
}

#[test]
fn a_link_in_the_place_of_temporary_directories_is_refused_and_not_followed() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "ls");
        let mut server = Server::start(&bench);
        server.line("ls").ok();
        let shared = fs::read_dir(bench.path("tmp")).unwrap().next().unwrap().unwrap().path();
        let outside = bench.path("outside");
        // The same names, as whoever plants a link would have them.
        for directory in directories(&shared) {
            fs::create_dir_all(outside.join(directory.strip_prefix(&shared).unwrap())).unwrap();
        }
        let planted = directories(&outside);
        fs::rename(&shared, bench.path("aside")).unwrap();
        symlink(&outside, &shared).unwrap();
        let outcome = server.call("execute_command", json!({"command": "ls", "sandbox": "read-only"}));
        outcome.refused("SANDBOX_UNAVAILABLE");
        let expected = "was moved or replaced, so nothing is made in it; start the server anew";
        assert!(outcome.message().ends_with(expected), "{}", outcome.text);
        assert!(server.end().success());
        // Nor does anybody start there, nor is anything cleared away.
        let output = bench.command().args(["exec", "--", "ls"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("is a link or a file") && said.contains("TMPDIR"),
            "{said}"
        );
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(directories(&outside), planted);
    });
}
