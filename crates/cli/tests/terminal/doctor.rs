//! What the machine offers. Which layers there are depends on it; how they are told does not.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Command;

use serde_json::{Value, json};

use crate::stage::{Stage, ran};

/// The findings, whatever the machine has.
fn findings(stage: &Stage) -> (i32, Value) {
    let ran = stage.run(&["doctor", "--json"]);
    (
        ran.code,
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}")),
    )
}

#[test]
fn the_exit_code_says_whether_what_policy_requires_is_there() {
    let stage = Stage::new();
    let (code, found) = findings(&stage);
    let layers = found["layers"].as_array().unwrap();
    let missing: Vec<_> = layers
        .iter()
        .filter(|layer| layer["required"] == true && layer["state"] == "unavailable")
        .map(|layer| layer["name"].clone())
        .collect();
    assert_eq!(layers.len(), 13);
    assert_eq!(found["missing"], json!(missing));
    assert_eq!(
        (code, &found["ok"]),
        (i32::from(!missing.is_empty()), &json!(missing.is_empty()))
    );
    let required: Vec<_> = layers
        .iter()
        .filter(|layer| layer["required"] == true)
        .map(|layer| &layer["name"])
        .collect();
    assert_eq!(required, ["rlimits", "no-new-privs", "landlock", "seccomp"]);
    assert!(!stage.state().exists(), "looking makes nothing");
    let text = stage.run(&["doctor"]).stdout;
    let last = text.lines().last().unwrap();
    assert!(
        last.starts_with(if missing.is_empty() { "ready: " } else { "not ready: " }),
        "{text}"
    );
}

#[test]
fn a_machine_without_proc_is_told_so_and_runs_nothing() {
    let stage = Stage::new();
    for (words, code) in [("doctor", 1), ("exec -- ls", 126)] {
        let inner = stage.command(&[]);
        let mut alone = Command::new("unshare");
        let line = format!(
            "mount -t tmpfs none /proc && {} {words}",
            inner.get_program().to_str().unwrap()
        );
        alone
            .args(["--map-root-user", "--mount", "sh", "-c", &line])
            .env_clear()
            .envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .current_dir(stage.work());
        let ran = ran(alone);
        if ran.stderr.contains("unshare") {
            eprintln!("skipped: no namespaces of one's own here: {}", ran.stderr);
            return;
        }
        let told = format!("{}{}", ran.stdout, ran.stderr);
        assert!(ran.code == code && told.contains("`/proc` is not mounted"), "{ran:?}");
    }
}

#[test]
fn a_workspace_that_commands_cannot_write_is_told_with_a_remedy() {
    let stage = Stage::new();
    fs::set_permissions(stage.work(), Permissions::from_mode(0o755)).unwrap();
    let owner = fs::metadata(stage.work()).unwrap().uid();
    let (_, found) = findings(&stage);
    let workspace = &found["workspace"];
    assert_eq!(workspace["owner_uid"], owner);
    if owner == 0 {
        let advice = workspace["advice"].as_str().unwrap();
        assert_eq!(workspace["commands_run_as"], "uid 65534, since root owns the workspace");
        assert!(
            advice.starts_with("uid 65534 cannot write it; give it to a user with `chown USER "),
            "{advice}"
        );
        fs::set_permissions(stage.work(), Permissions::from_mode(0o777)).unwrap();
        assert_eq!(findings(&stage).1["workspace"]["advice"], Value::Null);
    } else {
        assert_eq!(workspace["commands_run_as"], format!("uid {owner}, as the server"));
        assert_eq!(workspace["advice"], Value::Null);
    }
}

#[test]
fn an_open_state_directory_is_told() {
    let stage = Stage::with_record();
    fs::set_permissions(stage.state(), Permissions::from_mode(0o755)).unwrap();
    let (_, found) = findings(&stage);
    let advice = format!(
        "other users can look into it; close it with `chmod 700 {}`",
        stage.state().display()
    );
    assert_eq!(
        found["state_directory"],
        json!({"path": stage.state(), "exists": true, "mode": "0755", "advice": advice})
    );
}

#[test]
fn where_no_record_can_be_kept_or_no_command_can_run_nothing_is_ready() {
    let stage = Stage::new();
    let file = stage.write("file", "");
    let file = file.to_str().unwrap();
    for (arguments, place) in [
        (&["--state-dir", file][..], "state_directory"),
        (&["--state-dir", &format!("{file}/below")][..], "state_directory"),
    ] {
        let ran = stage.run(&[arguments, &["doctor", "--json"]].concat());
        let found: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((ran.code, &found["ok"]), (1, &json!(false)), "{found}");
        let advice = found[place]["advice"].as_str().unwrap();
        assert!(advice.contains("`--state-dir` names another"), "{advice}");
    }
    stage.operator(&format!("workspace_root: {file}\n"));
    let ran = stage.run(&["doctor"]);
    let last = ran.stdout.lines().last().unwrap();
    assert_eq!(
        (ran.code, last),
        (1, "not ready: there is no workspace to run commands in")
    );
}

#[test]
fn a_workspace_that_is_the_whole_system_is_told_alike_by_all_who_look_at_it() {
    let stage = Stage::new();
    let at_root = |args: &[&str]| {
        let mut command = stage.command(args);
        command.current_dir("/");
        ran(command)
    };
    let advice = "no command may work in it, since it holds the whole system, with the record and what commands must never see; \
                  set `workspace_root` in the operator's file to the directory to work in";
    let ended = at_root(&["doctor", "--json"]);
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((ended.code, &found["ok"]), (1, &json!(false)), "{found}");
    assert_eq!(found["workspace"]["advice"], advice);

    let refused = format!("the workspace is `/`, and {advice}");
    let explained = at_root(&["policy", "explain", "--json", "--", "ls"]).json();
    assert_eq!(
        [
            &explained["verdict"],
            &explained["rule"],
            &explained["error_code"],
            &explained["reason"]
        ],
        ["deny", "workspace", "CONFIGURATION_ERROR", &refused]
    );
    let ended = at_root(&["exec", "--cwd", stage.work().to_str().unwrap(), "--", "ls"]);
    assert!(ended.code == 126 && ended.stderr.contains(&refused), "{ended:?}");
    let ended = at_root(&["stdio"]);
    let warning = format!("warning: commands will be refused: the workspace is `/`, and {advice}\n");
    assert!(ended.code == 0 && ended.stderr.contains(&warning), "{ended:?}");

    stage.operator("workspace_root: /\ncommand_policy: {sandbox: read-only}\n");
    let explained = at_root(&["policy", "explain", "--json", "--", "ls"]).json();
    assert_eq!(
        [&explained["verdict"], &explained["reason"]],
        ["deny", &refused],
        "what only reads would read terminals: {explained}"
    );
}

#[test]
fn where_the_database_does_not_answer_nothing_is_ready() {
    let stage = Stage::new();
    // Nobody listens on the port of a listener that is gone.
    let gone = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("postgres://ana:s3cret@{gone}/record");
    let ran = stage.run(&["--database", &url, "doctor", "--json"]);
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &found["ok"]), (1, &json!(false)), "{found}");
    assert_eq!(
        found["database"]["address"],
        format!("postgres://ana:(hidden)@{gone}/record")
    );
    let text = stage.run(&["--database", &url, "doctor"]).stdout;
    assert!(
        text.ends_with("not ready: the database cannot be used, and without a record nothing runs\n"),
        "{text}"
    );
    assert!(text.contains("cannot be reached") && !text.contains("s3cret"), "{text}");
    assert_eq!(findings(&stage).1["database"], Value::Null);
}

#[test]
fn where_commands_have_a_user_that_they_cannot_run_as_nothing_is_ready() {
    let stage = Stage::new();
    for user in ["nobody-of-this-name", "root"] {
        // A server that is not root cannot become anybody at all.
        stage.operator(&format!("command_policy: {{run_as: {user}}}\n"));
        let (code, found) = findings(&stage);
        assert_eq!((code, &found["ok"]), (1, &json!(false)), "{found}");
        let last = stage.run(&["doctor"]).stdout.lines().last().unwrap().to_owned();
        assert!(
            last.starts_with("not ready: ") && last.contains("`command_policy.run_as`"),
            "{last}"
        );
        assert_eq!(stage.run(&["exec", "--", "ls"]).code, 126);
    }
}

#[test]
fn listed_shells_and_interpreters_are_warned_about() {
    let stage = Stage::new();
    let warning = |name: &str| {
        format!(
            "the allowlist names `{name}`, which runs any text it is given; only the sandbox limits what that text does"
        )
    };
    stage.operator("command_policy: {allowlist: [ls, bash, python3.12]}\n");
    let (_, found) = findings(&stage);
    let warned = found["warnings"].as_array().unwrap();
    // Not every machine has that one.
    assert_eq!(warned[..2], [warning("bash"), warning("python3.12")]);
    let expected = format!("warning: {}\nwarning: {}\n", warning("bash"), warning("python3.12"));
    let served = stage.run(&["stdio"]);
    assert!(served.stderr.starts_with(&expected), "{served:?}");
    // Someone who runs one command chose it themselves.
    let ran = stage.run(&["exec", "--", "rm"]);
    assert!(
        ran.code == 126 && !ran.stderr.contains("the allowlist names"),
        "{ran:?}"
    );
}

/// Whoever starts as root in a directory of root's meets this first.
#[test]
fn a_command_that_may_not_write_says_who_it_ran_as() {
    let stage = Stage::new();
    fs::set_permissions(stage.work(), Permissions::from_mode(0o755)).unwrap();
    let ran = stage.listing("*").run(&["exec", "--", "touch", "made"]);
    if fs::metadata(stage.work()).unwrap().uid() != 0 {
        assert_eq!(ran.code, 0, "{ran:?}");
        return;
    }
    let advice =
        "commands run as uid 65534, since root owns the workspace, and cannot write it; give it to a user with";
    assert!(
        ran.code == 1 && ran.stderr.contains(&format!("countersign: {advice} `chown USER ")),
        "{ran:?}"
    );
    let read = stage.listing("*").run(&["exec", "--", "ls", "none"]);
    assert!(!read.stderr.contains("uid 65534"), "{read:?}");
    let elsewhere = stage.listing("*").run(&["exec", "--", "cat", "/etc/shadow"]);
    assert!(
        elsewhere.code == 1 && elsewhere.stderr.contains("Permission denied"),
        "{elsewhere:?}"
    );
    assert!(
        !elsewhere.stderr.contains("chown"),
        "it is not about the workspace: {elsewhere:?}"
    );
    let served = stage.listing("*").run(&["stdio"]);
    assert!(served.stderr.contains(&format!("warning: {advice}")), "{served:?}");
    stage.operator("command_policy: {allowlist: ['*'], sandbox: read-only}\napproval_policy: {mode: never}\n");
    let barred = stage.run(&["exec", "--", "touch", "made"]);
    assert!(barred.code == 1 && !barred.stderr.contains("chown"), "{barred:?}");
    assert_eq!(findings(&stage).1["workspace"]["advice"], Value::Null);
}

#[test]
fn all_secrets_that_cannot_be_had_are_told_at_once_with_their_lines() {
    let stage = Stage::new();
    let file = stage.operator(
        "callbacks: {token_env: NOT_SET}\ngithub:\n  token_file: /nowhere\napprovers:\n- {name: duty, type: http, url: \
         'http://127.0.0.1:9/', headers: {Authorization_env: NOR_THIS}}\ndatabase_lifecycle: {url_env: NOR_THAT}\n",
    );
    let needed = [
        "line 1, column 13: `callbacks.token`: `NOT_SET`, which is to hold it, is not set",
        "line 3, column 3: `github.token`: `/nowhere`, which is to hold it, cannot be read",
        "line 4, column 1: approver `duty`: `headers.Authorization`: `NOR_THIS`, which is to hold it, is not set",
    ];
    let served = stage.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(served.code, 2, "{served:?}");
    let (code, found) = findings(&stage);
    let obstacles = found["obstacles"].to_string();
    assert_eq!(code, 1, "{obstacles}");
    for problem in needed {
        assert!(served.stderr.contains(problem), "{problem}: {}", served.stderr);
        assert!(obstacles.contains(problem), "{problem}: {obstacles}");
    }
    let checked = stage.run(&["policy", "check", &file.display().to_string()]);
    assert_eq!(checked.code, 0, "{checked:?}");
    for problem in needed.into_iter().chain(["`database_lifecycle.url`: `NOR_THAT`"]) {
        assert!(checked.stderr.contains(problem), "{problem}: {}", checked.stderr);
    }
}
