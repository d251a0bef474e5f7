//! Failures that say what to do about them.

use std::fs;

use serde_json::Value;

use crate::bench::Bench;
use crate::client::{Outcome, Server};

fn advice(outcome: &Outcome) -> &Value {
    &outcome.structured["error_details"]["advice"]
}

#[test]
fn a_command_that_reaches_nobody_is_told_that_there_is_no_network() {
    let says = "echo 'connect: Network is unreachable' >&2; exit 1";
    for (network, is_told) in [("deny", true), ("allow", false)] {
        let bench = Bench::configured("bash", &format!("  network: {network}\n"));
        let mut server = Server::start(&bench);
        let outcome = server.process("bash", &["-c", says]);
        outcome.failed("COMMAND_EXIT_NON_ZERO");
        let told = "`execute_command` and `execute_process` ask for it with `network: allow`";
        let advice = advice(&outcome).as_str().unwrap_or_default();
        assert_eq!(advice.ends_with(told), is_told, "{}", outcome.text);
        assert_eq!(outcome.message().ends_with(told), is_told, "{}", outcome.text);
        let outcome = server.process("bash", &["-c", "echo 'no such file' >&2; exit 1"]);
        assert_eq!(self::advice(&outcome), &Value::Null, "{}", outcome.text);
    }
}

#[test]
fn a_program_beside_the_list_that_the_kernel_refused_is_told_of_with_helpers() {
    let bench = Bench::configured("bash, cat", "");
    let mut server = Server::start(&bench);
    let outcome = server.process("bash", &["-c", "/usr/bin/id"]);
    if !outcome.layers().contains(&"exec-list") {
        return;
    }
    outcome.failed("COMMAND_EXIT_NON_ZERO");
    let advice = advice(&outcome).as_str().unwrap_or_default();
    assert!(advice.contains("`helpers: {make: [gcc]}`"), "{}", outcome.text);
    // A file that is nobody's to read is no program.
    let outcome = server.process("cat", &["/etc/shadow"]);
    assert_eq!(self::advice(&outcome), &Value::Null, "{}", outcome.text);

    let bench = Bench::configured("'*'", "");
    let outcome = Server::start(&bench).process("bash", &["-c", "echo 'make: gcc: Permission denied' >&2; exit 2"]);
    assert_eq!(self::advice(&outcome), &Value::Null, "{}", outcome.text);
}

#[test]
fn a_program_where_commands_cannot_read_is_told_of_with_the_setting_that_opens_it() {
    let bench = Bench::new();
    let place = bench.path("outside").canonicalize().unwrap();
    fs::copy("/usr/bin/true", place.join("mytool")).unwrap();
    let path = format!("  path: \"{}:/usr/bin:/bin\"\n", place.display());
    let bench = bench.configure("'*'", &path);
    let told = format!(
        "commands cannot read `{}`, where it lies; add that to `command_policy.read_paths`",
        place.display()
    );
    let mut server = Server::start(&bench);
    let outcome = server.process("mytool", &[]);
    outcome.failed("COMMAND_EXECUTION_FAILED");
    assert!(outcome.message().ends_with(&told), "{}", outcome.text);
    let outcome = server.line("mytool && mytool");
    assert_eq!(advice(&outcome), &Value::String(told), "{}", outcome.text);
    assert!(server.end().success());

    let bench = bench.configure("'*'", &format!("{path}  read_paths: [\"{}\"]\n", place.display()));
    Server::start(&bench).process("mytool", &[]).ok();
}
