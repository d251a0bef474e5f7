//! What is printed when somebody asks how: kept whole, so that a change of it is seen.

use std::fmt::Write as _;

use crate::stage::Stage;

const COMMANDS: &[&[&str]] = &[
    &[],
    &["serve"],
    &["stdio"],
    &["exec"],
    &["approvals"],
    &["approvals", "list"],
    &["approvals", "show"],
    &["approvals", "watch"],
    &["approvals", "approve"],
    &["approvals", "deny"],
    &["approve"],
    &["deny"],
    &["jobs"],
    &["jobs", "start"],
    &["jobs", "list"],
    &["jobs", "show"],
    &["jobs", "logs"],
    &["jobs", "send"],
    &["jobs", "interrupt"],
    &["hook"],
    &["hook", "claude-code"],
    &["sessions"],
    &["sessions", "list"],
    &["tokens"],
    &["tokens", "create"],
    &["tokens", "login"],
    &["tokens", "list"],
    &["tokens", "revoke"],
    &["audit"],
    &["audit", "tail"],
    &["audit", "query"],
    &["audit", "verify"],
    &["audit", "export"],
    &["audit", "prune"],
    &["db"],
    &["db", "status"],
    &["db", "migrate"],
    &["db", "backup"],
    &["db", "copy"],
    &["metrics"],
    &["policy"],
    &["policy", "check"],
    &["policy", "explain"],
    &["policy", "show"],
    &["config"],
    &["config", "init"],
    &["config", "show"],
    &["config", "schema"],
    &["config", "trust"],
    &["doctor"],
    &["connect"],
    &["demo"],
    &["completions"],
];

#[test]
fn every_command_explains_itself() {
    let stage = Stage::new();
    let mut all = String::new();
    for command in COMMANDS {
        let ran = stage.run(&[*command, &["--help"]].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{command:?}");
        writeln!(
            all,
            "$ countersign {}\n{}",
            [*command, &["--help"]].concat().join(" "),
            ran.stdout
        )
        .unwrap();
    }
    // To take a change over, copy the file that the message names.
    let new = std::env::temp_dir().join("countersign-help.txt");
    if all != include_str!("help.txt") {
        std::fs::write(&new, &all).unwrap();
        panic!("the help has changed; what it is now stands in `{}`", new.display());
    }
}

#[test]
fn what_is_not_understood_is_said_in_our_voice() {
    let ran = Stage::new().run(&["audits"]);
    assert!(
        ran.code == 2
            && ran
                .stderr
                .starts_with("countersign: unrecognized subcommand 'audits'\n"),
        "{ran:?}"
    );
    assert_eq!(ran.stdout, "");
}

#[test]
fn every_shell_gets_its_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = Stage::new().run(&["completions", shell]);
        assert!(
            ran.code == 0 && ran.stdout.contains("explain") && ran.stdout.contains("connect"),
            "{shell}"
        );
    }
}
