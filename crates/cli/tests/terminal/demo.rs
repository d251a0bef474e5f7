//! `demo`, seen through to its end without a person, and left in the middle.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::pty::Terminal;
use crate::stage::{Stage, ran};

/// The demo with a temporary directory of its own, to see that nothing stays in it.
fn demo(stage: &Stage, args: &[&str]) -> Command {
    let temporary = stage.home().join("tmp");
    std::fs::create_dir_all(&temporary).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    for path in [stage.home(), temporary.clone()] {
        std::fs::set_permissions(path, std::fs::Permissions::clone(&open)).unwrap();
    }
    let mut command = stage.command(&[&["demo"], args].concat());
    command.env("TMPDIR", temporary);
    command
}

#[test]
fn a_person_decides_in_the_demo_by_single_keys() {
    let stage = Stage::new();
    let temporary = demo(&stage, &[]);
    let (_, temporary) = temporary.get_envs().find(|(name, _)| *name == "TMPDIR").unwrap();
    let temporary = temporary.unwrap().to_str().unwrap();
    let mut terminal = Terminal::run(&stage, "demo", &[("TMPDIR", temporary)]);
    terminal.until("console: http://127.0.0.1:");
    terminal.until("1  the agent asks: ");
    terminal.until("cp README.md NOTES.md");
    terminal.until("waits for you");
    terminal.until("to keep notes beside the code");
    terminal.press("y");
    terminal.until("ok");
    terminal.until("4  the agent asks: ");
    terminal.until("waits for you");
    terminal.press("n");
    terminal.until("rejected");
    terminal.until("; rm -rf src");
    terminal.until("waits for you");
    terminal.press("n");
    terminal.until("proved");
    terminal.until("code=0");
    nothing_is_left(&stage);
}

#[test]
fn json_without_anybody_to_answer_is_refused_at_once() {
    let output = demo(&Stage::new(), &["--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--auto"), "{said}");
}

#[track_caller]
fn nothing_is_left(stage: &Stage) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let left = || -> Vec<_> {
        let entries = std::fs::read_dir(stage.home().join("tmp")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    while !left().is_empty() {
        assert!(std::time::Instant::now() < deadline, "left behind: {:?}", left());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(!stage.state().exists(), "the user's state was touched");
    let kept: Vec<_> = std::fs::read_dir(stage.home())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(kept.iter().all(|name| name == "tmp" || name == ".config"), "{kept:?}");
}

fn columns(ran: &Value, name: &str) -> Vec<Value> {
    ran["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step[name].clone())
        .collect()
}

#[test]
fn the_demo_shows_every_verdict_and_leaves_nothing_behind() {
    let stage = Stage::new();
    // A configuration that cannot be used is not even read.
    stage.operator("nonsense: [\n");
    let ended = ran(demo(&stage, &["--auto", "approve", "--json"])).json();
    assert_eq!(
        columns(&ended, "decision"),
        ["not asked", "approved", "not asked", "approved", "approved"],
        "{ended:#}"
    );
    assert_eq!(
        columns(&ended, "status"),
        ["ok", "ok", "rejected", "ok", "ok"],
        "{ended:#}"
    );
    assert_eq!(ended["steps"][2]["error_code"], "COMMAND_NOT_ALLOWED");
    assert_eq!(ended["steps"][3]["rule"], "request for more");
    assert_eq!(
        ended["steps"][4]["rule"], "mode untrusted",
        "the whitelist is not fooled"
    );
    assert_eq!(ended["record"]["sound"], true);
    nothing_is_left(&stage);

    let denied = ran(demo(&stage, &["--auto", "deny", "--json"])).json();
    assert_eq!(
        columns(&denied, "status"),
        ["ok", "rejected", "rejected", "rejected", "rejected"],
        "{denied:#}"
    );
    let codes = columns(&denied, "error_code");
    assert_eq!(codes[1], json!("APPROVAL_DENIED"), "{denied:#}");
    nothing_is_left(&stage);
}

#[test]
fn the_demo_tells_a_person_what_happens() {
    let stage = Stage::new();
    let told = ran(demo(&stage, &["--auto", "deny"]));
    assert_eq!((told.code, told.stderr.as_str()), (0, ""), "{told:?}");
    for part in [
        "\nconsole: http://127.0.0.1:",
        "/#token=cs_login_",
        "1  the agent asks: ",
        "5  the agent asks: ",
        "What the record keeps of it:",
        "proved sound",
        "countersign connect claude-code --write",
    ] {
        assert!(told.stdout.contains(part), "`{part}` is missing: {}", told.stdout);
    }
}

#[test]
fn a_demo_that_is_interrupted_leaves_nothing_behind() {
    let stage = Stage::new();
    let mut child = demo(&stage, &[]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let waits = lines
        .by_ref()
        .map_while(Result::ok)
        .find(|line| line.contains("waits for you"));
    assert!(waits.is_some());
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert!(
        !rest.iter().any(|line| line.contains("y approve")),
        "keys are for terminals: {rest:?}"
    );
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest:?}");
    assert!(
        rest.iter().any(|line| line.contains("nothing stays behind")),
        "{rest:?}"
    );
    nothing_is_left(&stage);
}
