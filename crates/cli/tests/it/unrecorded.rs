//! No record, no run: whatever keeps the record from being written keeps commands from running, and
//! only as long as it lasts.

use std::fs;
use std::path::Path;
use std::process::Command;

use rusqlite::Connection;
use serde_json::json;

use crate::bench::{As, Bench, is_root};
use crate::client::Server;

#[test]
fn a_record_locked_by_another_process_stops_commands_until_it_is_free() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "touch");
        let mut server = Server::start(&bench);
        server.process("touch", &["before"]).ok();
        let other = Connection::open(bench.state().join("record.db")).unwrap();
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        let call = server.call_later("execute_process", json!({"file": "touch", "args": ["canary"]}));
        server.ping();
        let outcome = server.result(call);
        outcome.refused("AUDIT_UNAVAILABLE");
        assert!(outcome.structured["retryable"] == true && !bench.work().join("canary").exists());
        other.execute_batch("ROLLBACK").unwrap();
        server.process("touch", &["after"]).ok();
        assert!(bench.work().join("after").exists() && !bench.work().join("canary").exists());
        server.end();
        bench.prove();
    });
}

#[test]
fn a_full_disk_stops_commands_until_there_is_room() {
    if !is_root() {
        return;
    }
    let bench = Bench::allowing("touch,echo");
    let state = bench.state();
    let _mount = Mount::tmpfs(&state, "size=4m,mode=700");
    let mut server = Server::start(&bench);
    server.process("touch", &["before"]).ok();
    let ballast = state.join("ballast");
    fill(&ballast);
    let mut refused = 0;
    for number in 0..40 {
        let canary = format!("canary-{number}");
        let outcome = server.process("touch", &[&canary]);
        let ran = bench.work().join(&canary).exists();
        match outcome.code() {
            "" => assert!(ran),
            "AUDIT_UNAVAILABLE" => {
                refused += 1;
                assert!(!ran, "ran without a record: {}", outcome.text);
                break;
            }
            other => panic!("{other}: {}", outcome.text),
        }
    }
    assert!(refused > 0, "the disk never was full");
    fs::remove_file(&ballast).unwrap();
    server.process("touch", &["after"]).ok();
    server.end();
    bench.prove();
}

/// Leaves room for the beginning of a command and not for the end of one that says much.
fn fill_but_a_little(path: &Path) {
    const LEFT: u64 = 128 << 10;
    fill(path);
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    let bytes = file.metadata().unwrap().len();
    file.set_len(bytes - LEFT).unwrap();
}

/// Says more than there is room for.
const TALK: [&str; 3] = ["-c", "600000", "/dev/zero"];

#[test]
fn a_command_that_ran_is_told_and_closed_as_it_ended_though_its_end_found_no_room() {
    if !is_root() {
        return;
    }
    let bench = Bench::allowing("touch,head");
    let state = bench.state();
    let _mount = Mount::tmpfs(&state, "size=8m,mode=700");
    let mut server = Server::start(&bench);
    server.process("touch", &["before"]).ok();
    let ballast = state.join("ballast");
    fill_but_a_little(&ballast);
    let ran = server.process("head", &TALK);
    ran.failed("AUDIT_UNAVAILABLE");
    assert!(ran.message().contains("the command ran"), "{}", ran.text);
    assert_eq!(ran.structured["retryable"], false);
    let refused = server.process("touch", &["canary"]);
    refused.refused("AUDIT_UNAVAILABLE");
    assert_eq!(refused.structured["retryable"], true);
    assert!(!bench.work().join("canary").exists());
    fs::remove_file(&ballast).unwrap();
    assert!(server.end().success());
    let records = bench.records(ran.id());
    assert_eq!((records.len(), &records[0]["status"]), (1, &json!("ok")));
    let mut server = Server::start(&bench);
    server.process("touch", &["after"]).ok();
    server.end();
    assert_eq!(bench.records(ran.id()), records);
    bench.prove();
}

#[test]
fn exec_tells_a_command_that_ran_unrecorded_from_one_that_did_not_run() {
    if !is_root() {
        return;
    }
    let bench = Bench::configured("head", "shutdown_grace_ms: 200\n");
    let state = bench.state();
    let _mount = Mount::tmpfs(&state, "size=8m,mode=700");
    let exec = || {
        let mut command = bench.command();
        command.args(["exec", "--", "head"]).args(TALK);
        command.stdin(std::process::Stdio::null()).output().unwrap()
    };
    assert!(exec().status.success());
    fill_but_a_little(&state.join("ballast"));
    let output = exec();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("failed") && said.contains("the command ran"), "{said}");
}

/// What keeps files from growing is told as a record that cannot be written, and commands are not spared by us.
#[test]
fn a_limit_to_the_size_of_files_stops_commands_and_not_the_server() {
    let bench = Bench::allowing("touch,grep");
    let mut server = Server::start(&bench);
    server.process("touch", &["before"]).ok();
    let pid = server.pid().to_string();
    let limit = |soft: &str| {
        let limit = format!("--fsize={soft}:");
        let status = Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap();
        assert!(status.success());
    };
    limit("4096");
    server.process("touch", &["canary"]).refused("AUDIT_UNAVAILABLE");
    assert!(!bench.work().join("canary").exists());
    limit("unlimited");
    let status = server.process("grep", &["-E", "Sig(Ign|Cgt)", "/proc/self/status"]);
    for line in status.ok().lines() {
        let mask = u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap();
        assert_eq!(mask >> 24 & 1, 0, "SIGXFSZ is not what it is by default: {line}");
    }
    assert!(server.end().success());
    bench.prove();
}

#[test]
fn a_limit_to_the_size_of_files_is_told_at_the_start() {
    let bench = Bench::allowing("touch");
    let binary = env!("CARGO_BIN_EXE_countersign");
    let mut command = Command::new("prlimit");
    command.args(["--fsize=4096", binary, "exec", "--", "touch", "canary"]);
    let own = bench.command();
    for (name, value) in own.get_envs() {
        command.env(name, value.unwrap());
    }
    command.current_dir(bench.work()).stdin(std::process::Stdio::null());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(126), "{said}");
    assert!(
        said.contains("record") && !bench.work().join("canary").exists(),
        "{said}"
    );
}

fn fill(path: &Path) {
    use std::io::Write;
    let mut file = fs::File::create(path).unwrap();
    for size in [1 << 16, 1 << 12, 1] {
        let block = vec![0; size];
        while file.write_all(&block).is_ok() {}
    }
}

/// A file system of its own, unmounted when the test ends.
struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    fn tmpfs(at: &'a Path, options: &str) -> Self {
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(at)
            .status()
            .unwrap();
        assert!(status.success());
        Self(at)
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_record_that_became_read_only_stops_commands() {
    if !is_root() {
        return;
    }
    let bench = Bench::allowing("touch");
    let state = bench.state();
    let _mount = Mount::tmpfs(&state, "size=16m,mode=700");
    let mut server = Server::start(&bench);
    server.process("touch", &["before"]).ok();
    let remount = |how: &str| {
        Command::new("mount")
            .args(["-o", &format!("remount,{how}")])
            .arg(&state)
            .status()
            .unwrap()
            .success()
    };
    // Open files keep a file system writable; where the kernel says so there is nothing to test.
    if !remount("ro") {
        return;
    }
    server.process("touch", &["canary"]).refused("AUDIT_UNAVAILABLE");
    assert!(remount("rw") && !bench.work().join("canary").exists());
    server.process("touch", &["after"]).ok();
}

#[test]
fn a_state_directory_that_cannot_be_written_is_said_at_the_start() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::of(As::Ordinary).env("ALLOWED_COMMANDS", "touch");
    fs::set_permissions(bench.state(), fs::Permissions::from_mode(0o500)).unwrap();
    let output = bench
        .command()
        .arg("stdio")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("state"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn a_server_does_not_start_without_a_record() {
    let bench = Bench::allowing("touch");
    fs::remove_dir(bench.state()).unwrap();
    fs::write(bench.state(), "not a directory").unwrap();
    let output = bench
        .command()
        .arg("stdio")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("state"), "{said}");
    let refused = bench
        .command()
        .args(["exec", "--", "touch", "canary"])
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert_eq!(
        refused.status.code(),
        Some(126),
        "{}",
        String::from_utf8_lossy(&refused.stderr)
    );
    assert!(!bench.work().join("canary").exists());
}
