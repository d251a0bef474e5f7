//! What would happen, by which rule, and what is in force.

use serde_json::{Value, json};

use crate::stage::Stage;

#[test]
fn a_verdict_is_explained_to_programs() {
    let stage = Stage::new();
    let programs = |name: &str| json!([std::fs::canonicalize(format!("/usr/bin/{name}")).unwrap()]);
    let explain = |args: &[&str]| stage.json(&[&["policy", "explain", "--json"], args].concat());
    let cwd = stage.work().canonicalize().unwrap();
    assert_eq!(
        explain(&["--", "ls", "-l"]),
        json!({
            "verdict": "allow", "rule": "whitelist `ls`", "source": "built-in", "sources": ["default"],
            "cwd": cwd, "timeout_ms": 30_000, "sandbox": "read-only", "network": "deny",
            "reason": "only reads", "programs": programs("ls"), "warnings": [], "keys": {"role": "agent"},
            "took_part": [
                {"rule": "allowlist", "source": "default", "effect": "allow"},
                {"rule": "mode untrusted", "source": "default", "effect": "ask"},
                {"rule": "whitelist `ls`", "source": "built-in", "effect": "allow"},
            ],
        })
    );
    assert_eq!(
        explain(&["--", "rm", "x"]),
        json!({
            "verdict": "ask", "rule": "mode untrusted", "source": "default", "sources": ["default"],
            "reason": "no whitelist rule covers every command of it", "programs": programs("rm"), "warnings": [],
            "keys": {"role": "agent"},
            "cwd": cwd, "timeout_ms": 30_000, "sandbox": "workspace-write", "network": "deny",
            "took_part": [
                {"rule": "allowlist", "source": "default", "effect": "allow"},
                {"rule": "mode untrusted", "source": "default", "effect": "ask"},
            ],
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
            "reason": "`rm` is not on the allowlist (line 1, column 5); on it: `ls`", "programs": [], "warnings": [],
            "error_code": "COMMAND_NOT_ALLOWED", "keys": {"role": "agent"},
            "took_part": [{"rule": "allowlist", "source": "environment ALLOWED_COMMANDS", "effect": "deny"}],
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
             it would run `{}` as a process, without a shell\n{rest}\
             allowlist says allow, from default\n\
             mode untrusted says ask, from default\n",
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
    assert_eq!(how("cd x && cd y"), "it would run as a line without a shell, with `cd`");
    let [bash, ls] = ["/usr/bin/bash", "/usr/bin/ls"].map(|program| std::fs::canonicalize(program).unwrap());
    assert_eq!(
        how("for i in 1 2; do ls; done"),
        format!(
            "it needs a shell and would run in `{}`, with `{}`",
            bash.display(),
            ls.display()
        )
    );
    let denied = stage.listing("ls").run(&["policy", "explain", "--", "rm"]).stdout;
    assert_eq!(
        denied,
        "deny: it would be refused with COMMAND_NOT_ALLOWED\n\
         the rule is allowlist, from environment ALLOWED_COMMANDS: `rm` is not on the allowlist; on it: `ls`\n\
         allowlist says deny, from environment ALLOWED_COMMANDS\n"
    );
}

#[test]
fn nobody_is_asked_about_a_program_that_there_is_none_of() {
    let stage = Stage::new();
    let explained = |tool: &str, word: &str| stage.json(&["policy", "explain", "--json", "--tool", tool, "--", word]);
    let process = explained("execute_process", "no-such-program");
    let line = explained("execute_command", "no-such-program");
    assert_eq!(line["error_code"], "COMMAND_EXECUTION_FAILED");
    assert_eq!(line["reason"], process["reason"]);
    // What comes behind it may run all the same.
    assert_eq!(
        explained("execute_command", "no-such-program || touch x")["verdict"],
        "ask"
    );
}

#[test]
fn programs_that_this_machine_does_not_have_are_warned_about() {
    let stage = Stage::new();
    let policy = "command_policy:\n  allowlist: [ls, nosuchprog, /nowhere/prog, ulimit]\n  \
                  helpers: {cargoo: [nosuch], ls: [cat, workspace, /usr/lib, /nowhere/lib]}\n";
    let file = stage.operator(policy);
    let warned = |key: &str, line: usize, word: &str| {
        let ends = match word.starts_with('/') {
            true => "and no such program is on this machine",
            false => {
                "and on this machine no such program is in `command_policy.path`; what lies elsewhere is named by its whole path"
            }
        };
        let file = file.display();
        format!("{file}: line {line}, column 3: `command_policy.{key}` names `{word}`, {ends}")
    };
    let expected = [
        warned("allowlist", 2, "nosuchprog"),
        warned("allowlist", 2, "/nowhere/prog"),
        warned("helpers", 3, "cargoo"),
        warned("helpers", 3, "nosuch"),
        warned("helpers", 3, "/nowhere/lib"),
    ];
    let ran = stage.run(&["policy", "check", file.to_str().unwrap()]);
    let told: Vec<_> = ran
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix("warning: "))
        .collect();
    assert_eq!((ran.code, told), (0, expected.iter().map(String::as_str).collect()));
    let ran = stage.run(&["doctor", "--json"]);
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(found["warnings"], json!(expected));
}

#[test]
fn a_workspace_and_a_user_that_are_not_there_are_warned_about() {
    let stage = Stage::new();
    let file = stage.write(
        "p.yaml",
        "workspace_root: nowhere\ncommand_policy:\n  run_as: nosuchuser\n  allowlist: [ls]\n",
    );
    let ran = stage.run(&["policy", "check", "p.yaml"]);
    let (name, root) = (file.display(), file.with_file_name("nowhere"));
    let told: Vec<_> = ran.stderr.lines().collect();
    let expected = format!(
        "warning: {name}: line 1, column 1: `workspace_root` is `{}`, and no such directory is on this machine",
        root.display()
    );
    assert_eq!(
        (ran.code, told.first().copied(), told.len()),
        (0, Some(expected.as_str()), 2),
        "{ran:?}"
    );
    let lead = format!("warning: {name}: line 3, column 3: `command_policy.run_as`: ");
    assert!(told[1].starts_with(&lead) && told[1].contains("nosuchuser"), "{ran:?}");
    assert_eq!(ran.stdout, "`p.yaml` has no problems\n");
}

#[test]
fn whoever_names_what_is_not_listed_hears_what_would_do() {
    let stage = Stage::new();
    let explained = |list: &str, words: &[&str]| {
        let explain = ["policy", "explain", "--json", "--tool", "run_command", "--"];
        stage.listing(list).run(&[&explain, words].concat()).json()["reason"].clone()
    };
    let many: Vec<String> = (1..=14).map(|number| format!("p{number}")).collect();
    assert_eq!(
        explained(&many.join(","), &["curl"]),
        "`curl` is not on the allowlist; on it are `p1`, `p2`, `p3`, `p4`, `p5`, `p6`, `p7`, `p8`, `p9`, `p10`, `p11`, `p12` \
         and 2 more, which the resource `countersign://policy` names"
    );
    assert_eq!(
        explained("ls,/usr/bin/git", &["curl"]),
        "`curl` is not on the allowlist; on it: `ls`, `/usr/bin/git`"
    );
    for list in ["ls", "*"] {
        let told = explained(list, &["ls -la"]);
        let told = told.as_str().unwrap();
        assert!(
            told.ends_with("; all of this was taken for the name of a program: its arguments go into `args`"),
            "{told}"
        );
    }
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
    let unknown = stage.json(&["policy", "explain", "--json", "--tool", "deploy", "--", "ls"]);
    assert_eq!(
        (&unknown["verdict"], &unknown["rule"], &unknown["error_code"]),
        (&json!("deny"), &json!("catalog"), &json!("UNKNOWN_TOOL"))
    );
    stage
        .run(&["policy", "explain", "--tool", "database.lifecycle", "--", "delete"])
        .failed(
            2,
            "countersign: `delete` is neither NAME=VALUE nor a JSON object, which is how this tool's arguments are written\n",
        );
    stage
        .run(&["policy", "explain"])
        .failed(2, "countersign: name a command behind `--`\n");
    stage
        .run(&["policy", "explain", "--tool", "execute_command", "--", "ls", "-l"])
        .failed(
            2,
            "countersign: `execute_command` takes the whole line as one argument, not 2; quote it\n",
        );
}

#[test]
fn a_call_of_a_tool_from_a_file_is_explained_by_what_its_file_says() {
    let stage = Stage::new();
    let operator = stage.operator("approval_policy: {mode: never}\ntool_files: [tools.yaml]\n");
    let tools = "tools:
- name: say
  description: says it
  approval: required
  timeout_ms: 20000
  input_schema: {type: object, properties: {text: {type: string}, times: {type: integer}}, required: [text]}
  executor: {type: argv, command: [printf, '%s', '{{ args.text }}']}
- name: notify
  description: tells a service
  approval: none
  timeout_ms: 20000
  input_schema: {type: object, properties: {text: {type: string}}}
  executor: {type: http, url: 'http://127.0.0.1:9/x', method: POST}
";
    std::fs::write(operator.with_file_name("tools.yaml"), tools).unwrap();
    let explain = |words: &[&str]| stage.json(&[&["policy", "explain", "--json", "--tool"], words].concat());
    let asks = explain(&["say", "--", "text=a b", "times=3"]);
    assert_eq!(
        (&asks["verdict"], &asks["rule"], &asks["programs"]),
        (&json!("ask"), &json!("declared tool say"), &json!(["/usr/bin/printf"])),
        "{asks}"
    );
    assert!(
        asks["source"].as_str().unwrap().contains("tools.yaml, line 2"),
        "{asks}"
    );
    let whole = explain(&["say", "--", r#"{"text": "a b", "times": 3}"#]);
    assert_eq!(whole["verdict"], "ask");
    for wrong in [
        ["text=x", "times=often"].as_slice(),
        &["times=3"],
        &["text=x", "other=1"],
    ] {
        let refused = explain(&[&["say", "--"], wrong].concat());
        assert_eq!(refused["error_code"], "INVALID_ARGUMENTS", "{wrong:?}");
    }
    let told = explain(&["notify", "--", "text=x"]);
    assert_eq!(
        (&told["verdict"], &told["rule"]),
        (&json!("allow"), &json!("declared tool notify"))
    );
    // Nobody offered it to this run.
    let hidden = explain(&["database.lifecycle", "--label", "run:dev", "--", "action=delete"]);
    assert_eq!(hidden["error_code"], "UNKNOWN_TOOL", "{hidden}");
}

const RUNS: &str = "\
approval_policy: {mode: never}
tools:
  run_command: {approval: required}
policies:
  agents:
    reviewer: {tools: {'execute_*': {actions: [read]}, 'github_labels_*': {actions: [read]}}}
    sre: {tools: {'*': {approval: none}}}
  labels:
    'run:review': {agent_key: reviewer, tools: {run_command: {approval: none}}}
    'run:ops': {agent_key: sre, tools: {execute_process: {approval: required}}}
  projects:
    shop: {repositories: [example/shop], namespace: shop, tools: {'database.*': {scope: namespace}}}
";

#[test]
fn every_rule_that_took_part_is_named_with_its_place() {
    let stage = Stage::new();
    let operator = stage.operator(RUNS);
    let project = stage.write(".countersign/config.yaml", "tools: {run_command: {approval: none}}\n");
    let at = |line: u32, column: u32| format!("operator file {}, line {line}, column {column}", operator.display());
    let said = stage.json(&[
        "policy",
        "explain",
        "--json",
        "--tool",
        "run_command",
        "--label",
        "run:review",
        "--repository",
        "example/shop",
        "--",
        "ls",
    ]);
    assert_eq!(
        (&said["verdict"], &said["rule"], &said["source"]),
        (&json!("ask"), &json!("tools run_command"), &json!(at(3, 3)))
    );
    assert_eq!(
        said["took_part"],
        json!([
            {"rule": "tools run_command", "source": at(3, 3), "effect": "approval: required"},
            {"rule": "tools run_command", "source": format!("project file {}, line 1, column 9", project.display()), "effect": "approval: none"},
            {"rule": "policies.labels.run:review.tools.run_command", "source": at(9, 49), "effect": "approval: none"},
            {"rule": "policies.projects.shop.namespace", "source": at(12, 5), "effect": "namespace: shop"},
            {"rule": "policies.projects.shop.repositories", "source": at(12, 5), "effect": "repository: example/shop"},
            {"rule": "allowlist", "source": "default", "effect": "allow"},
            {"rule": "mode never", "source": at(1, 19), "effect": "allow"},
        ])
    );
    // The label brought the agent, the repository the project, the project the namespace.
    assert_eq!(
        said["keys"],
        json!({
            "role": "agent", "agent_key": "reviewer", "label": "run:review", "labels": ["run:review"], "project": "shop",
            "namespace": "shop", "repository": "example/shop",
        })
    );
}

#[test]
fn a_caller_is_judged_by_its_agent_label_and_project() {
    let stage = Stage::new();
    stage.operator(RUNS);
    let said = |args: &[&str]| {
        let said = stage.json(&[&["policy", "explain", "--json"], args].concat());
        let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
        format!("{} {} {}", text("verdict"), text("error_code"), text("rule"))
    };
    for (args, expected) in [
        (&["--", "ls"][..], "allow  mode never"),
        (
            &["--label", "run:ops", "--", "ls"],
            "ask  policies.labels.run:ops.tools.execute_process",
        ),
        (
            &["--agent-key", "reviewer", "--", "ls"],
            "deny UNKNOWN_TOOL policies.agents.reviewer.tools.execute_*",
        ),
        (
            &["--tool", "github_labels_list", "--label", "run:review"],
            "allow  built-in matrix github_labels_*",
        ),
        (
            &["--tool", "github_labels_add", "--label", "run:review"],
            "deny UNKNOWN_TOOL policies.agents.reviewer.tools.github_labels_*",
        ),
        (
            &["--tool", "secret.sync.github_k8s"],
            "ask  built-in matrix secret.sync.*",
        ),
        (
            &["--tool", "secret.sync.github_k8s", "--label", "run:review"],
            "deny UNKNOWN_TOOL built-in run catalog secret.sync.*",
        ),
        (
            &["--tool", "database.lifecycle", "--", "action=describe"],
            "allow  built-in matrix database.*",
        ),
        (
            &[
                "--tool",
                "database.lifecycle",
                "--label",
                "run:ops",
                "--",
                r#"{"action": "delete"}"#,
            ],
            "ask  built-in matrix database.*",
        ),
        (
            &[
                "--tool",
                "database.lifecycle",
                "--project",
                "shop",
                "--",
                "action=describe",
                "namespace=blog",
            ],
            "deny POLICY_DENIED policies.projects.shop.tools.database.*",
        ),
        (
            &["--tool", "start-task", "--label", "run:ops"],
            "deny UNKNOWN_TOOL built-in run catalog start-task",
        ),
    ] {
        assert_eq!(said(args), expected, "{args:?}");
    }
    let page = stage
        .run(&[
            "policy",
            "explain",
            "--tool",
            "secret.sync.github_k8s",
            "--label",
            "run:ops",
        ])
        .stdout;
    assert!(
        page.starts_with(
            "ask: it would act only after a person approves it\n\
             the rule is built-in matrix secret.sync.*, from built-in: the tool `secret.sync.github_k8s` needs approval\n\
             the caller is role `agent`, agent_key `sre`, label `run:ops`, labels `run:ops`\n\
             built-in matrix secret.sync.* says approval: required, from built-in\n"
        ),
        "{page}"
    );
}

/// The comments of the example say what it does.
#[test]
fn the_example_of_runs_does_what_it_says() {
    let stage = Stage::new();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/runs.yaml");
    let verdict = |args: &[&str]| {
        let said = stage.json(&[&["--config", example, "policy", "explain", "--json", "--tool"], args].concat());
        said["verdict"].as_str().unwrap_or_default().to_owned()
    };
    for (args, expected) in [
        (&["execute_command", "--label", "run:review", "--", "ls"][..], "deny"),
        (&["github_labels_list", "--label", "run:review"], "allow"),
        (&["execute_command", "--label", "run:ops", "--", "ls"], "ask"),
        (&["execute_process", "--label", "run:ops", "--", "ls"], "allow"),
        (&["run_command", "--", "ls"], "deny"),
        (&["run_command", "--role", "operator", "--", "ls"], "allow"),
        (
            &["database.lifecycle", "--label", "run:ops", "--", "action=delete"],
            "ask",
        ),
        (
            &["database.lifecycle", "--label", "run:ops", "--", "action=describe"],
            "allow",
        ),
        (
            &[
                "database.lifecycle",
                "--repository",
                "example/shop",
                "--",
                "action=describe",
            ],
            "allow",
        ),
        (
            &[
                "database.lifecycle",
                "--repository",
                "example/shop",
                "--namespace",
                "blog",
                "--",
                "action=describe",
            ],
            "deny",
        ),
        (
            &[
                "secret.sync.github_k8s",
                "--label",
                "run:ops",
                "--repository",
                "example/shop",
            ],
            "ask",
        ),
        (
            &[
                "secret.sync.github_k8s",
                "--label",
                "run:ops",
                "--repository",
                "example/shop-web",
            ],
            "deny",
        ),
    ] {
        assert_eq!(verdict(args), expected, "{args:?}");
    }
}

/// What `policy.changed` holds is the policy, not a picture of it.
#[test]
fn the_recorded_policy_is_the_one_that_decided() {
    use countersign_gateway::policy::effective::EffectivePolicy;

    let stage = Stage::new();
    stage.operator(RUNS);
    stage.run(&["exec", "--", "no-such-program"]);
    let events = stage.json(&["audit", "query", "--kind", "event", "--json"]);
    let events = events.as_array().unwrap();
    let payload = |kind: &str| {
        let found = events.iter().find(|event| event["event_type"] == kind);
        found.unwrap_or_else(|| panic!("{kind}"))["payload"].clone()
    };
    let recorded = payload("policy.changed");
    let policy = EffectivePolicy::from_content(&recorded["content"]).unwrap();
    assert_eq!(policy.snapshot()["digest"], recorded["digest"]);
    let snapshot = &payload("command.completed")["policy_snapshot"];
    assert_eq!(snapshot["digest"], recorded["digest"]);
    assert_eq!(snapshot["keys"], json!({"role": "operator"}));
}

#[test]
fn the_policies_in_force_are_shown_with_their_places() {
    let stage = Stage::new();
    let operator = stage.operator(RUNS);
    let text = stage.run(&["policy", "show", "--effective"]).stdout;
    let place = format!("operator file {}, line 10, column 41", operator.display());
    let entry = format!("policies.labels.run:ops     pattern: execute_process; source: {place}; approval: required\n");
    for line in [entry.as_str(), "policies.labels.run:ops     agent_key: sre\n"] {
        assert!(text.contains(line), "{line}{text}");
    }
    let checked = stage.write(
        "bad.yaml",
        "policies:\n  agents: {a: {tools: {x: {approval: maybe}}}}\n  labels: {l: {tools: {x: {scope: moon}}, agnt: y}}\n",
    );
    let ran = stage.run(&["policy", "check", "bad.yaml"]);
    let problems: Vec<_> = ran
        .stderr
        .lines()
        .skip(1)
        .map(|line| line.replace(&*checked.to_string_lossy(), ""))
        .collect();
    assert_eq!(
        problems,
        [
            ": line 2, column 38: `policies.agents.a.tools.x.approval` must be one of `none`, `required`, `deny`, not `maybe`",
            ": line 3, column 35: `policies.labels.l.tools.x.scope` must be one of `namespace`, `cluster`, `repository`, not `moon`",
            ": line 3, column 43: `policies.labels.l.agnt` is not a known key; did you mean `agent`?",
        ]
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
        missing.code == 2 && missing.stderr.contains("missing.yaml: does not exist; "),
        "{missing:?}"
    );
}

#[test]
fn a_rule_of_the_whitelist_that_covers_nothing_is_warned_about() {
    let stage = Stage::new();
    let file = stage.operator(
        "approval_policy:\n  whitelist:\n  - {pattern: '^ls', reason: x}\n  - {pattern: '^sed -n', reason: x}\n  \
         - {pattern: '^sed -n 1p x$', reason: x}\n  - {pattern: '^sed -E', reason: x, enabled: false}\n",
    );
    let checked = stage.run(&["policy", "check", file.to_str().unwrap()]);
    assert_eq!(checked.code, 0, "{checked:?}");
    let told: Vec<&str> = checked.stderr.lines().collect();
    assert_eq!(told.len(), 1, "{checked:?}");
    let expected = format!("warning: operator file {}, line 4, column 5", file.display());
    assert!(told[0].starts_with(&expected), "{told:?}");
    assert!(
        told[0].contains("`^sed -n` covers no command, since `-n` is always asked about"),
        "{told:?}"
    );
}

#[test]
fn an_entry_about_a_tool_that_there_is_none_of_is_warned_about() {
    let stage = Stage::new();
    let file = stage.operator(
        "tools:\n  execute_comand: {approval: deny}\n  \"database.*\": {approval: required}\n  \"nosuch.*\": {approval: deny}\n\
         policies: {labels: {'run:ops': {tools: {run_comand: {approval: deny}}}}}\n",
    );
    let place = |line: u32| format!("operator file {}, line {line}, column", file.display());
    let expected = [
        (2, "`execute_comand`", "; did you mean `execute_command`?"),
        (4, "`nosuch.*`", "decides nothing"),
        (5, "`run_comand`", "; did you mean `run_command`?"),
    ];
    let are_told = |told: &[&str]| {
        assert_eq!(told.len(), expected.len(), "{told:?}");
        for (told, (line, name, hint)) in told.iter().zip(expected) {
            let is_meant = told.contains(&place(line)) && told.contains(name) && told.ends_with(hint);
            assert!(is_meant, "{told}");
        }
    };
    let checked = stage.run(&["policy", "check", file.to_str().unwrap()]);
    assert_eq!(checked.code, 0, "{checked:?}");
    assert_eq!(checked.stderr.lines().count(), 3, "{checked:?}");
    let ran = stage.run(&["exec", "--", "true"]);
    are_told(
        &ran.stderr
            .lines()
            .filter(|line| line.starts_with("warning: "))
            .collect::<Vec<_>>(),
    );
    for command in [&["policy", "explain", "--json", "--", "ls"][..], &["doctor", "--json"]] {
        let said = stage.json(command);
        are_told(
            &said["warnings"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|it| it.as_str())
                .collect::<Vec<_>>(),
        );
    }
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
