//! Client configuration: printed, written, and what happens to a file that was there before.

mod files;

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::stage::{Ran, Stage, ran};

const BINARY: &str = env!("CARGO_BIN_EXE_countersign");
const CLIENTS: &[&str] = &["claude-code", "claude-desktop", "codex", "cursor", "vscode"];

/// The arguments that this stage's entries have.
fn args(stage: &Stage) -> Value {
    json!(["--state-dir", stage.state(), "stdio"])
}

fn write(stage: &Stage, client: &str, more: &[&str]) -> Ran {
    stage.run(&[&["connect", client, "--write"], more].concat())
}

/// Puts a text where the client looks for it, and answers with its path.
fn given(stage: &Stage, name: &str, text: &str) -> PathBuf {
    let path = stage.home().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

/// The names in a directory.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn what_belongs_in_each_clients_file_is_printed() {
    let stage = Stage::new();
    let mut all = String::new();
    for more in [&[][..], &["--http"], &["--scope", "project", "--name", "local"]] {
        for client in CLIENTS {
            let asked = [&["connect", client], more].concat();
            let ran = stage.run(&asked);
            write!(all, "$ countersign {}\n{}{}\n", asked.join(" "), ran.stdout, ran.stderr).unwrap();
        }
    }
    for (path, name) in [
        (PathBuf::from(BINARY), "BINARY"),
        (stage.home(), "HOME"),
        (stage.work(), "WORK"),
        (stage.state(), "STATE"),
    ] {
        all = all.replace(path.to_str().unwrap(), &format!("/{name}"));
    }
    // To take a change over, copy the file that the message names.
    let new = std::env::temp_dir().join("countersign-connect.txt");
    if all != include_str!("connect.txt") {
        fs::write(&new, &all).unwrap();
        panic!("the text has changed; what it is now stands in `{}`", new.display());
    }
}

#[test]
fn nothing_is_made_without_write() {
    let stage = Stage::new();
    for client in CLIENTS {
        let told = stage.json(&["connect", client, "--json"]);
        assert_eq!(
            (&told["client"], &told["written"], &told["backup"]),
            (&json!(client), &json!(false), &Value::Null)
        );
    }
    assert!(names(&stage.home()).is_empty() && names(&stage.work()).is_empty());
}

#[test]
fn a_hook_is_printed_written_once_and_leaves_other_hooks_alone() {
    let stage = Stage::new();
    let governed = ["connect", "claude-code", "--governed"];
    let proposed = stage.json(&[&governed[..], &["--json"]].concat());
    let file = stage.home().join(".claude/settings.json");
    assert_eq!((&proposed["file"], &proposed["written"]), (&json!(file), &json!(false)));
    assert!(!file.exists(), "nothing is made without --write");
    let hook = &proposed["entry"]["hooks"][0];
    let command = hook["command"].as_str().unwrap();
    assert!(
        command.contains(BINARY) && command.contains("hook claude-code --wait-seconds"),
        "{command}"
    );
    let waits = command.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    assert!(
        waits < hook["timeout"].as_u64().unwrap(),
        "it answers before Claude Code gives up"
    );
    let others =
        "{\n  \"hooks\": {\"PreToolUse\": [ {\"matcher\": \"Read\", \"hooks\": []} ]},\n  \"model\":  \"x\"\n}\n";
    given(&stage, ".claude/settings.json", others);
    let written = write(&stage, "claude-code", &["--governed", "--json"]).json();
    assert_eq!(written["written"], json!(true));
    assert_eq!(fs::read_to_string(written["backup"].as_str().unwrap()).unwrap(), others);
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("{\"matcher\": \"Read\", \"hooks\": []}") && text.contains("\"model\":  \"x\""),
        "{text}"
    );
    let settings: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(settings["hooks"]["PreToolUse"][1], written["entry"]);
    let again = write(&stage, "claude-code", &["--governed", "--json"]).json();
    assert_eq!(again["written"], json!(false));
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    for refused in [
        &["connect", "codex", "--governed"][..],
        &["connect", "claude-code", "--governed", "--http"],
    ] {
        assert_eq!(stage.run(refused).code, 2, "{refused:?}");
    }
}

#[test]
fn a_file_is_made_with_its_directories() {
    let stage = Stage::new();
    for (client, name) in [
        ("claude-code", ".claude.json"),
        ("claude-desktop", ".config/Claude/claude_desktop_config.json"),
        ("codex", ".codex/config.toml"),
        ("cursor", ".cursor/mcp.json"),
        ("vscode", ".config/Code/User/mcp.json"),
    ] {
        let path = stage.home().join(name);
        let told = write(&stage, client, &["--json"]).json();
        let mut entry = json!({"command": BINARY, "args": args(&stage)});
        if ["claude-code", "vscode"].contains(&client) {
            entry["type"] = json!("stdio");
        }
        assert_eq!(
            told,
            json!({"client": client, "file": path, "entry": entry, "written": true, "backup": null})
        );
        assert_eq!(mode(&path), 0o600, "{client}");
        assert_eq!(
            names(path.parent().unwrap()).len(),
            1,
            "nothing is left beside {client}'s"
        );
        if path.extension().is_some_and(|extension| extension == "json") {
            let section = if client == "vscode" { "servers" } else { "mcpServers" };
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.ends_with("}\n"), "{text}");
            let file: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(file, json!({section: {"countersign": entry}}));
        }
    }
}

#[test]
fn the_clients_own_variables_name_the_place() {
    let stage = Stage::new();
    let at = |variable: &str, value: &Path, client: &str| {
        let mut command = stage.command(&["connect", client, "--json"]);
        command.env(variable, value);
        ran(command).json()["file"].clone()
    };
    let dir = stage.work().join("elsewhere");
    assert_eq!(at("CODEX_HOME", &dir, "codex"), json!(dir.join("config.toml")));
    assert_eq!(
        at("CLAUDE_CONFIG_DIR", &dir, "claude-code"),
        json!(dir.join(".claude.json"))
    );
    assert_eq!(
        at("XDG_CONFIG_HOME", &dir, "vscode"),
        json!(dir.join("Code/User/mcp.json"))
    );
    let desktop = dir.join("Claude/claude_desktop_config.json");
    assert_eq!(at("XDG_CONFIG_HOME", &dir, "claude-desktop"), json!(desktop));
}

#[test]
fn the_entry_starts_the_server_as_it_would_start_here() {
    let stage = Stage::new();
    stage.write("policy.yaml", "command_policy: {allowlist: [ls]}\n");
    let mut command = stage.command(&[
        "--config",
        "policy.yaml",
        "--state-dir",
        "near",
        "connect",
        "cursor",
        "--json",
    ]);
    command
        .env("ALLOWED_COMMANDS", "ls")
        .env("XDG_STATE_HOME", "/somewhere")
        .env("XDG_CACHE_HOME", "/cached")
        .env("COUNTERSIGN_CACHE_DIR", "/elsewhere");
    let entry = ran(command).json()["entry"].take();
    let (config, state) = (stage.work().join("policy.yaml"), stage.work().join("near"));
    assert_eq!(
        entry,
        json!({
            "command": BINARY,
            "args": ["--config", config, "--state-dir", state, "stdio"],
            "env": {
                "ALLOWED_COMMANDS": "ls",
                "XDG_STATE_HOME": "/somewhere",
                "XDG_CACHE_HOME": "/cached",
                "COUNTERSIGN_CACHE_DIR": "/elsewhere",
            },
        })
    );
    // A client starts it from anywhere.
    let words = entry["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap());
    let started = Command::new(entry["command"].as_str().unwrap())
        .args(words)
        .current_dir("/usr")
        .env_clear()
        .env("HOME", stage.home())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(started.status.success(), "{started:?}");
    assert!(!names(&state).is_empty(), "the record is where it was asked for");
}

#[test]
fn a_variable_that_may_hold_a_password_is_told_and_not_written() {
    let stage = Stage::new();
    let mut command = stage.command(&["connect", "codex", "--write"]);
    command.env("COUNTERSIGN_DATABASE", "postgres://ana:secret@db/x");
    let told = ran(command).stdout;
    assert!(
        told.contains(
            "note: `COUNTERSIGN_DATABASE` is set here and may hold a password, so it is not in the entry; set it where \
             Codex starts\n"
        ) && !told.contains("secret"),
        "{told}"
    );
    let file = fs::read_to_string(stage.home().join(".codex/config.toml")).unwrap();
    assert!(!file.contains("secret"), "{file}");
}

#[test]
fn a_configuration_that_is_not_there_is_not_handed_on() {
    let stage = Stage::new();
    let path = stage.work().join("none.yaml");
    stage
        .run(&["--config", "none.yaml", "connect", "codex", "--write"])
        .failed(
            2,
            &format!(
                "countersign: `{}` is not a file; the server would not start\n",
                path.display()
            ),
        );
    assert!(names(&stage.home()).is_empty());
}

#[test]
fn the_program_is_named_as_it_was_called() {
    let stage = Stage::new();
    let link = stage.home().join("bin/countersign");
    fs::create_dir(link.parent().unwrap()).unwrap();
    symlink(BINARY, &link).unwrap();
    let named = |mut command: Command| {
        let output = command
            .args(["connect", "cursor", "--json"])
            .env("PATH", link.parent().unwrap())
            .current_dir(stage.home())
            .output()
            .unwrap();
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        told["entry"]["command"].clone()
    };
    assert_eq!(named(Command::new(&link)), json!(link));
    let mut by_path = Command::new("/bin/sh");
    by_path.args(["-c", r#"exec countersign "$@""#, "sh"]);
    assert_eq!(named(by_path), json!(link));
    // A name that leads to another program is not believed.
    let mut lies = Command::new(BINARY);
    std::os::unix::process::CommandExt::arg0(&mut lies, "/bin/sh");
    assert_eq!(named(lies), json!(BINARY));
}

#[test]
fn a_running_server_is_named_by_where_it_listens() {
    let stage = Stage::new();
    stage.operator("listen: 0.0.0.0:9000\nauth: {anonymous_agents: false}\n");
    let entry = |args: &[&str]| stage.json(&[&["connect", "codex", "--json"], args].concat())["entry"].take();
    let token = "COUNTERSIGN_TOKEN";
    assert_eq!(
        entry(&["--http"]),
        json!({"url": "http://127.0.0.1:9000/mcp", "bearer_token_env_var": token})
    );
    assert_eq!(
        entry(&["--url", "https://example.org/mcp"]),
        json!({"url": "https://example.org/mcp", "bearer_token_env_var": token})
    );
    assert_eq!(
        entry(&["--http", "--no-token"]),
        json!({"url": "http://127.0.0.1:9000/mcp"})
    );
    let open = stage
        .run(&["connect", "codex", "--url", "http://example.org/mcp"])
        .stdout;
    assert!(
        open.contains("note: `http://example.org/mcp` is not encrypted; the token can be read on the way\n"),
        "{open}"
    );
    // Agents on this machine need none with a server that listens here only.
    stage.operator("listen: 127.0.0.1:9000\n");
    assert_eq!(entry(&["--http"]), json!({"url": "http://127.0.0.1:9000/mcp"}));
    assert_eq!(
        entry(&["--http", "--with-token"]),
        json!({"url": "http://127.0.0.1:9000/mcp", "bearer_token_env_var": token})
    );
}

#[test]
fn what_cannot_be_is_a_usage_error() {
    let stage = Stage::new();
    for (args, told) in [
        (
            &["codex", "--name", "a b"][..],
            "`a b` cannot be the name of a server; clients take 1 to 64 letters, digits, `-` and `_`\n",
        ),
        (&["codex", "--name", ""], "`` cannot be the name of a server; "),
        (
            &["claude-desktop", "--http"],
            "Claude Desktop takes no address in its file, it starts servers itself; leave `--http` and `--url` out\n",
        ),
        (
            &["claude-desktop", "--scope", "project"],
            "Claude Desktop has no files of projects; leave `--scope project` out\n",
        ),
        (
            &["cursor", "--url", "localhost:7420"],
            "`localhost:7420` is not an address such as `http://127.0.0.1:7420/mcp`\n",
        ),
        (
            &["cursor", "--url", "http://ana:pw@host/mcp"],
            "`http://ana:pw@host/mcp` must not carry a name or password\n",
        ),
        (&["cursor", "--no-token"], "`--no-token` goes with `--http`\n"),
        (
            &["cursor", "--force"],
            "the following required arguments were not provided:\n  --write\n",
        ),
        (&["emacs"], "invalid value 'emacs' for '<CLIENT>'\n"),
    ] {
        let ran = stage.run(&[&["connect"], args].concat());
        let told = format!("countersign: {told}");
        assert!(ran.code == 2 && ran.stderr.starts_with(&told), "{args:?}: {ran:?}");
    }
}
