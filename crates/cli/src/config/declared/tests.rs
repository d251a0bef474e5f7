//! Tool files: every problem with its place, and what a template may be.

use super::*;
use crate::config::origin::Position;

/// What is wrong with a file, with its place.
fn problems(text: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.yaml");
    std::fs::write(&path, text).unwrap();
    let surroundings = Surroundings {
        variables: BTreeMap::new(),
        current_dir: dir.path().to_owned(),
        home: None,
        other_homes: Vec::new(),
    };
    let found = problems_of(&path, &surroundings).expect("a tool file");
    let place = |at: Option<Position>| at.map(|at| format!("{}:{} ", at.line, at.column)).unwrap_or_default();
    found
        .into_iter()
        .map(|problem| format!("{}{}", place(problem.origin.at), problem.message))
        .collect()
}

fn of_executor(executor: &str) -> Vec<String> {
    problems(&format!(
        "tools:\n- name: t\n  description: d\n  approval: none\n  timeout_ms: 1000\n  input_schema: {{type: object, \
         properties: {{x: {{type: string}}, list: {{type: array}}}}}}\n  executor: {executor}\n"
    ))
}

#[test]
fn every_problem_of_a_file_is_told_at_once_with_its_place() {
    let found = problems(
        "tools:\n\
         - name: execute_command\n  surprise: 1\n  description: d\n  approval: maybe\n  timeout_ms: 0\n  \
         input_schema: {type: string}\n  executor: {type: argv, command: []}\n\
         - name: twice\n  description: d\n  timeout_ms: 1\n  input_schema: {type: object}\n  \
         executor: {type: argv, command: ['true']}\n\
         - name: twice\n  timeout_ms: 1\n  input_schema: {type: object}\n  executor: {type: shell}\n",
    );
    for (place, said) in [
        ("2:9 ", "is a tool of this program"),
        ("3:3 ", "is not a known key"),
        ("5:13 ", "`approval` must be one of"),
        ("6:15 ", "`timeout_ms` must be"),
        ("7:17 ", "`type: object`"),
        ("8:", "must be a list"),
        ("14:9 ", "is declared already"),
        ("14:3 ", "`description` is missing"),
        ("17:", "`executor.type` must be one of"),
    ] {
        assert!(
            found.iter().any(|it| it.starts_with(place) && it.contains(said)),
            "{place}{said}: {found:#?}"
        );
    }
}

#[test]
fn a_template_fills_one_whole_value_that_the_schema_describes() {
    for (executor, said) in [
        ("{type: argv, command: [ls, '{{ args.x }}']}", ""),
        ("{type: argv, command: [ls, [-n, '{{ args.x }}']]}", ""),
        ("{type: argv, command: [ls, '--x={{ args.x }}']}", "fills only a part"),
        ("{type: argv, command: [ls, '{{ args.none }}']}", "no property `none`"),
        ("{type: argv, command: [ls, '{{ args.list }}']}", "only text"),
        ("{type: argv, command: ['{{ args.x }}']}", "never filled"),
        ("{type: argv, command: [./run]}", "absolute path"),
        (
            "{type: argv, command: [bash, -c, '{{ args.x }}']}",
            "text that `bash` runs",
        ),
        ("{type: argv, command: [bash, '{{ args.x }}']}", "text that `bash` runs"),
        (
            "{type: argv, command: [python3, -c, '{{ args.x }}']}",
            "text that `python3` runs",
        ),
        (
            "{type: argv, command: [bash, -c, 'echo \"$1\"', _, '{{ args.x }}']}",
            "",
        ),
        ("{type: argv, command: [ls], env: {LD_PRELOAD: x}}", "may be set"),
        ("{type: http, url: 'http://127.0.0.1:1/a/{{ args.x }}'}", ""),
        (
            "{type: http, url: 'http://{{ args.x }}/a'}",
            "never for a part of the host",
        ),
        ("{type: http, url: 'http://u:p@h/a'}", "must not hold a user"),
        ("{type: http, url: 'ftp://h/a'}", "must be an http"),
        (
            "{type: http, url: 'http://h/a', method: GET, async: true}",
            "cannot say where to call back",
        ),
        (
            "{type: http, url: 'http://h/a', headers: {Host: x}}",
            "we set ourselves",
        ),
        (
            "{type: http, url: 'http://h/a', headers: {X-A: \"a\\r\\nb\"}}",
            "no header may hold",
        ),
        (
            "{type: http, url: 'http://h/a', headers: {X-A_env: NOT_SET}}",
            "is not set",
        ),
        ("{type: http, url: 'http://h/a', spec: {a: ['{{ args.list }}']}}", ""),
        (
            "{type: http, url: 'http://h/a', spec: {a: 'x {{ args.x }}'}}",
            "fills only a part",
        ),
    ] {
        let found = of_executor(executor);
        match said {
            "" => assert!(found.is_empty(), "{executor}: {found:?}"),
            said => assert!(found.iter().any(|it| it.contains(said)), "{executor}: {found:?}"),
        }
    }
}

#[test]
fn the_shipped_tool_files_have_no_problems() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tools");
    let mut surroundings = Surroundings {
        variables: BTreeMap::new(),
        current_dir: folder.clone(),
        home: None,
        other_homes: Vec::new(),
    };
    surroundings
        .variables
        .insert("ROOM_TOKEN".to_owned(), "a-token".to_owned());
    let mut read = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let found = problems_of(&path, &surroundings).expect("a tool file");
        assert!(found.is_empty(), "{}: {found:?}", path.display());
        read += 1;
    }
    assert!(read > 0);
}
