//! Configuration from the terminal.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::stage::{Stage, ran};

#[test]
fn a_first_file_is_private_loads_and_is_not_written_over() {
    let stage = Stage::new();
    let own = stage.home().join(".config/countersign/config.yaml");
    let named = stage.work().join("named.yaml");
    for (args, path) in [
        (&["config", "init"][..], &own),
        (&["--config", "named.yaml", "config", "init"], &named),
    ] {
        let ran = stage.run(args);
        assert!(ran.code == 0 && ran.stdout.starts_with("wrote `"), "{ran:?}");
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        let checked = stage.run(&["policy", "check", path.to_str().unwrap()]);
        assert_eq!(checked.code, 0, "{checked:?}");
    }
    fs::write(&own, "quorum: 2\n").unwrap();
    stage.run(&["config", "init"]).failed(
        1,
        &format!(
            "countersign: `{}` is there already and was left as it is; edit it, or write over it by \
             `countersign config init --force`\n",
            own.display()
        ),
    );
    assert_eq!(fs::read_to_string(&own).unwrap(), "quorum: 2\n");
    assert_eq!(stage.run(&["config", "init", "--force"]).code, 0);
    assert_ne!(fs::read_to_string(&own).unwrap(), "quorum: 2\n");
}

#[test]
fn every_value_is_shown_with_its_source() {
    let stage = Stage::new();
    stage.operator("quorum: 2\n");
    let file = stage.home().join(".config/countersign/config.yaml");
    let shown = stage.json(&["config", "show", "--json"]);
    let expected =
        serde_json::json!({"value": 2, "source": format!("operator file {}, line 1, column 1", file.display())});
    assert_eq!(shown["values"]["quorum"], expected);
    assert_eq!(shown["state_dir"]["value"], stage.state().to_str().unwrap());
    let text = stage.run(&["config", "show"]).stdout;
    assert!(
        text.contains(&format!(
            "\nquorum: 2  # operator file {}, line 1, column 1\n",
            file.display()
        )),
        "{text}"
    );
}

#[test]
fn the_schema_is_json() {
    let schema = Stage::new().json(&["config", "schema"]);
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
}

#[test]
fn a_configuration_that_cannot_be_used_ends_every_command_with_two() {
    let stage = Stage::new();
    stage.operator("quorums: 2\n");
    let file = stage.home().join(".config/countersign/config.yaml");
    let problem = format!(
        "countersign: the configuration has problems:\n{}: line 1, column 1: `quorums` ",
        file.display()
    );
    for args in [
        &["config", "show"][..],
        &["policy", "show"],
        &["policy", "explain", "--", "ls"],
        &["doctor"],
        &["exec", "--", "ls"],
        &["stdio"],
    ] {
        let ran = stage.run(args);
        assert!(ran.code == 2 && ran.stderr.starts_with(&problem), "{args:?}: {ran:?}");
    }
}

#[test]
fn a_file_that_would_not_be_taken_is_not_trusted() {
    let stage = Stage::new();
    for text in ["command_policy: {network: maybe}\n", "a: [\n", "tools: [{name: x}]\n"] {
        let file = stage.write(".countersign/config.yaml", text);
        let checked = stage.run(&["policy", "check", file.to_str().unwrap()]);
        let trusted = stage.run(&["config", "trust", file.to_str().unwrap()]);
        assert_eq!((checked.code, checked.stderr.is_empty()), (2, false), "{checked:?}");
        trusted.failed(2, &checked.stderr);
    }
    assert!(!stage.state().exists());
}

#[test]
fn a_file_that_is_not_there_is_not_trusted() {
    let stage = Stage::new();
    let ran = stage.run(&["config", "trust", "none.yaml"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.starts_with("countersign: `none.yaml` cannot be trusted: "),
        "{ran:?}"
    );
    stage
        .run(&["config", "trust", "."])
        .failed(2, "countersign: `.` is not a file\n");
    assert!(!stage.state().exists());
}

#[test]
fn a_file_that_takes_its_secrets_from_variables_is_checked_with_them() {
    let stage = Stage::new();
    // Outside of the workspace, where files of tools count without being trusted.
    let file = stage.operator("tool_files: [ask.yaml]\n");
    let tools = "tools:
  - name: ask
    description: Asks.
    timeout_ms: 1000
    input_schema: {type: object}
    executor: {type: http, url: 'https://room.example.org/', async: true, headers: {Authorization_env: COUNTERSIGN_ROOM}}
";
    fs::write(file.with_file_name("ask.yaml"), tools).unwrap();
    let check = |variables: &[(&str, &str)]| {
        let mut command = stage.command(&["policy", "check", file.to_str().unwrap()]);
        command.envs(variables.iter().copied());
        ran(command)
    };
    let without = check(&[]);
    assert_eq!(without.code, 2);
    for told in [
        "`COUNTERSIGN_ROOM`, which is to hold it, is not set",
        "or `COUNTERSIGN_CALLBACK_TOKEN`",
    ] {
        assert!(without.stderr.contains(told), "{without:?}");
    }
    let with = check(&[
        ("COUNTERSIGN_ROOM", "Bearer x"),
        ("COUNTERSIGN_CALLBACK_TOKEN", "s3cret"),
    ]);
    assert_eq!(with.code, 0, "{with:?}");
    // What is wrong with the environment is no problem of the file.
    fs::write(&file, "quorum: 2\n").unwrap();
    let blank = check(&[("COUNTERSIGN_CALLBACK_TOKEN", " ")]);
    assert_eq!(blank.code, 0, "{blank:?}");
}
