//! What would happen, by which rule, and what is in force.

use serde_json::json;

use crate::stage::Stage;

#[test]
fn a_verdict_is_explained_to_programs() {
    let stage = Stage::new();
    let programs = |name: &str| json!([std::fs::canonicalize(format!("/usr/bin/{name}")).unwrap()]);
    let explain = |args: &[&str]| stage.json(&[&["policy", "explain", "--json"], args].concat());
    assert_eq!(
        explain(&["--", "ls", "-l"]),
        json!({
            "verdict": "allow", "rule": "whitelist `ls`", "source": "built-in", "sources": ["default"],
            "reason": "only reads", "programs": programs("ls"), "warnings": [],
        })
    );
    assert_eq!(
        explain(&["--", "rm", "x"]),
        json!({
            "verdict": "ask", "rule": "mode untrusted", "source": "default", "sources": ["default"],
            "reason": "no whitelist rule covers every command of it", "programs": programs("rm"), "warnings": [],
        })
    );
    let denied = stage.listing("ls").run(&[
        "policy",
        "explain",
        "--json",
        "--tool",
        "execute_command",
        "--",
        "ls; rm x",
    ]);
    assert_eq!(
        denied.json(),
        json!({
            "verdict": "deny", "rule": "allowlist", "source": "environment ALLOWED_COMMANDS",
            "sources": ["default", "environment ALLOWED_COMMANDS"],
            "reason": "`rm` is not on the allowlist (line 1, column 5)", "programs": [], "warnings": [],
            "error_code": "COMMAND_NOT_ALLOWED",
        })
    );
    assert_eq!(
        explain(&["--cwd", "/", "--", "ls"])["error_code"],
        "WORKSPACE_ISOLATION_VIOLATION"
    );
    assert_eq!(explain(&["--", ""])["error_code"], "INVALID_ARGUMENTS");
    assert!(!stage.state().exists(), "asking leaves nothing behind");
}

#[test]
fn a_verdict_is_explained_to_people() {
    let stage = Stage::new();
    let work = stage.work().canonicalize().unwrap();
    let work = work.display();
    let explain = |args: &[&str]| stage.run(&[&["policy", "explain"], args].concat()).stdout;
    let rest = format!(
        "it would start in `{work}` and be ended after 30 s\n\
         it could write only in `{work}`, and not use the network (sandbox workspace-write, network deny)\n"
    );
    let rm = std::fs::canonicalize("/usr/bin/rm").unwrap();
    assert_eq!(
        explain(&["--", "rm", "x"]),
        format!(
            "ask: it would run only after a person approves it\n\
             the rule is mode untrusted, from default: no whitelist rule covers every command of it\n\
             it would run `{}` as a process, without a shell\n{rest}",
            rm.display()
        )
    );
    let how = |line: &str| {
        explain(&["--tool", "execute_command", "--", line])
            .lines()
            .nth(2)
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        how("cd x && cd y"),
        "it would run as a line without a shell, with `cd`, `cd`"
    );
    let bash = std::fs::canonicalize("/usr/bin/bash").unwrap();
    assert_eq!(
        how("for i in 1 2; do ls; done"),
        format!("it needs a shell and would run in `{}`", bash.display())
    );
    let denied = stage.listing("ls").run(&["policy", "explain", "--", "rm"]).stdout;
    assert_eq!(
        denied,
        "deny: it would be refused with COMMAND_NOT_ALLOWED\n\
         the rule is allowlist, from environment ALLOWED_COMMANDS: `rm` is not on the allowlist\n"
    );
}

#[test]
fn what_a_project_may_not_loosen_is_shown() {
    let stage = Stage::new();
    stage.operator("command_policy: {network: deny}\n");
    let file = stage.write(".countersign/config.yaml", "command_policy: {network: allow}\n");
    let said = stage.json(&["policy", "explain", "--json", "--", "ls"]);
    let warnings = said["warnings"].as_array().unwrap();
    assert!(
        warnings.len() == 1 && warnings[0].as_str().unwrap().contains("`command_policy.network`"),
        "{said}"
    );
    let sentence = format!("warning: {}\n", warnings[0].as_str().unwrap());
    assert!(
        stage
            .run(&["policy", "explain", "--", "ls"])
            .stdout
            .ends_with(&sentence)
    );

    let trusted = stage.run(&["config", "trust", file.to_str().unwrap()]);
    assert!(
        trusted.code == 0 && trusted.stdout.starts_with("trusted `"),
        "{trusted:?}"
    );
    assert_eq!(
        stage.json(&["policy", "explain", "--json", "--", "ls"])["warnings"],
        json!([])
    );
    stage.write(
        ".countersign/config.yaml",
        "command_policy: {network: allow} # changed\n",
    );
    assert_eq!(
        stage.json(&["policy", "explain", "--json", "--", "ls"])["warnings"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn a_tool_that_is_unknown_or_disabled_is_told_apart() {
    let stage = Stage::new();
    stage.operator("tools: {execute_process: {enabled: false}, run_command: {approval: required}}\n");
    let disabled = stage.json(&["policy", "explain", "--json", "--", "ls"]);
    assert_eq!(
        (&disabled["verdict"], &disabled["error_code"]),
        (&json!("deny"), &json!("UNKNOWN_TOOL"))
    );
    let asks = stage.json(&["policy", "explain", "--json", "--tool", "run_command", "--", "ls"]);
    assert_eq!(
        (&asks["verdict"], &asks["rule"]),
        (&json!("ask"), &json!("tools run_command"))
    );
    stage.run(&["policy", "explain", "--tool", "deploy", "--", "ls"]).failed(
        2,
        "countersign: there is no policy on commands for the tool `deploy`; use one of `execute_command`, `execute_process`, `run_command`\n",
    );
    stage
        .run(&["policy", "explain", "--tool", "execute_command", "--", "ls", "-l"])
        .failed(
            2,
            "countersign: `execute_command` takes the whole line as one argument, not 2; quote it\n",
        );
}

#[test]
fn a_file_is_checked_alone_and_every_problem_told() {
    let stage = Stage::new();
    // Neither of these is asked about.
    stage.operator("nonsense: 1\n");
    stage.write(".countersign/config.yaml", "nonsense: 1\n");
    let file = stage.write(
        "bad.yaml",
        "command_policy:\n  alowlist: [ls]\n  sandbox: wide\nquorum: 0\n",
    );
    let ran = stage.listing("").run(&["policy", "check", "bad.yaml"]);
    let lines: Vec<_> = ran.stderr.lines().collect();
    let name = file.display();
    assert_eq!(
        (ran.code, lines.len(), lines[0]),
        (2, 4, "countersign: the configuration has problems:"),
        "{ran:?}"
    );
    assert!(
        lines[1].starts_with(&format!(
            "{name}: line 2, column 3: `command_policy.alowlist` is not a known key"
        )),
        "{ran:?}"
    );
    assert!(lines[2].starts_with(&format!("{name}: line 3, column ")), "{ran:?}");
    assert!(lines[3].starts_with(&format!("{name}: line 4, column ")), "{ran:?}");

    stage.write("none.yaml", "quorum: 2\n");
    stage.write(".countersign/config.yaml", "");
    assert_eq!(
        stage.run(&["policy", "check", "none.yaml"]).stdout,
        "`none.yaml` has no problems\n"
    );
    let missing = stage.run(&["policy", "check", "missing.yaml"]);
    assert!(
        missing.code == 2 && missing.stderr.ends_with("missing.yaml: does not exist\n"),
        "{missing:?}"
    );
}

/// The expression finds the example, but a rule ends where a word ends.
#[test]
fn a_whitelist_rule_must_meet_its_examples_as_a_rule() {
    let stage = Stage::new();
    let file = stage.write(
        "rules.yaml",
        "approval_policy:\n  whitelist:\n    - {pattern: '^ls', match: ['lsof']}\n    - {pattern: '^make', match: ['make x; id']}\n",
    );
    let expected = format!(
        "countersign: the configuration has problems:\n\
         {name}: line 3, column 32: rule `^ls` does not cover its example `lsof`\n\
         {name}: line 4, column 34: rule `^make` does not cover its example `make x; id`\n",
        name = file.display()
    );
    stage.run(&["policy", "check", "rules.yaml"]).failed(2, &expected);
    stage
        .run(&["--config", "rules.yaml", "policy", "show"])
        .failed(2, &expected);
}

#[test]
fn the_policy_in_force_comes_with_its_digest() {
    let stage = Stage::new();
    let shown = stage.json(&["policy", "show", "--effective", "--json"]);
    assert_eq!(shown["digest"].as_str().unwrap().len(), 64);
    assert_eq!(shown["content"]["approval_mode"], "untrusted");
    let text = stage.run(&["policy", "show", "--effective"]).stdout;
    let first = format!("digest                {}\n", shown["digest"].as_str().unwrap());
    assert!(
        text.starts_with(&first) && text.contains("\nnetwork               deny\n"),
        "{text}"
    );
}
