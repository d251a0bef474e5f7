//! What is printed when somebody asks how: kept whole, so that a change of it is seen.

use std::fmt::Write as _;

use crate::stage::Stage;

/// The commands below one, as its help names them.
fn below(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    listed
        .take_while(|line| !line.is_empty())
        // What does not fit into a line goes on further to the right.
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect()
}

/// The help of a command and of all commands below it.
fn explain(stage: &Stage, command: &[String], all: &mut String) {
    let words: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
    let ran = stage.run(&words);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{command:?}");
    writeln!(all, "$ countersign {}\n{}", words.join(" "), ran.stdout).unwrap();
    for name in below(&ran.stdout) {
        explain(stage, &[command, &[name]].concat(), all);
    }
}

#[test]
fn every_command_explains_itself() {
    let mut all = String::new();
    explain(&Stage::new(), &[], &mut all);
    // To take a change over, copy the file that the message names.
    let new = std::env::temp_dir().join("countersign-help.txt");
    if all != include_str!("help.txt") {
        std::fs::write(&new, &all).unwrap();
        panic!("the help has changed; what it is now stands in `{}`", new.display());
    }
}

#[test]
fn help_is_also_a_command() {
    let stage = Stage::new();
    for (asked, flag) in [
        (&["help"][..], &["--help"][..]),
        (&["help", "policy", "explain"], &["policy", "explain", "--help"]),
    ] {
        let (asked, flag) = (stage.run(asked), stage.run(flag));
        assert_eq!((asked.code, asked.stdout), (0, flag.stdout));
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
    let nothing = Stage::new().run(&[]);
    assert!(
        nothing.code == 2 && nothing.stderr.starts_with("Stands between"),
        "{nothing:?}"
    );
}

#[test]
fn a_number_below_zero_is_told_as_a_number_and_not_as_an_option() {
    let stage = Stage::new();
    for command in [
        &["audit", "query", "--limit", "-1"][..],
        &["audit", "tail", "--last", "-1"],
        &["exec", "--timeout-ms", "-1", "--", "true"],
        &["runs", "list", "--issue", "-1"],
    ] {
        let ran = stage.run(command);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{command:?}");
        assert!(ran.stderr.contains("invalid value '-1'"), "{command:?}: {}", ran.stderr);
    }
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
