//! Another configuration while jobs are at work: those that begin have the agents that it names, those that have
//! begun keep theirs.

use std::fs;

use serde_json::{Value, json};

use super::{shown, start, told, until, with_agent};
use crate::bench::Bench;
use crate::client::eventually;
use crate::web::{Web, legacy};

/// An agent that says a word and is done.
fn saying(bench: &Bench, file: &str, word: &str) -> String {
    let line = format!("#!/bin/sh\necho '{{\"event\": \"TaskComplete\", \"result\": \"{word}\"}}'\n");
    bench.program(file, line).display().to_string()
}

fn configure(bench: &Bench, yaml: &str) {
    fs::write(bench.path("config/countersign/config.yaml"), yaml).unwrap();
}

fn agents(of: &[(&str, &str)]) -> String {
    let entry = |(name, program): &(&str, &str)| {
        format!(
            "  - {{name: {name}, command: ['{program}'], eventParsing: {{format: jsonl, lineDelimited: true, eventTypeField: event}}}}\n"
        )
    };
    format!("agents:\n{}", of.iter().map(entry).collect::<String>())
}

/// What `start-task` says of agents, as a client lists it.
fn offered(web: &Web, session: &str) -> String {
    let (_, answer) = web.post("/mcp", session, &legacy(1, "tools/list", json!({})));
    let tools = answer["result"]["tools"].as_array().unwrap();
    let task = tools.iter().find(|tool| tool["name"] == "start-task");
    task.map_or_else(String::new, Value::to_string)
}

#[test]
fn jobs_that_begin_have_the_agents_of_the_new_configuration_and_others_keep_theirs() {
    let bench = with_agent(Bench::new(), "");
    let web = Web::serve(&bench);
    let session = web.session(json!({}));
    let old = start(&bench, "work", &[]);
    until(&bench, &old, "running");
    let (first, second) = (saying(&bench, "a.sh", "new"), saying(&bench, "b.sh", "other"));
    configure(&bench, &agents(&[("mine", &first), ("second", &second)]));
    web.hang_up();
    eventually("the new agent is offered", || {
        offered(&web, &session).contains("second")
    });
    let new = start(&bench, "greet", &["--agent", "mine"]);
    assert_eq!(until(&bench, &new, "completed")["output"]["result"], "new");
    let other = start(&bench, "greet", &["--agent", "second"]);
    assert_eq!(until(&bench, &other, "completed")["output"]["result"], "other");
    // What had begun goes on as it began.
    fs::write(bench.work().join("go"), "").unwrap();
    assert_eq!(until(&bench, &old, "completed")["output"]["result"], "worked");
    web.stop();
    bench.prove();
}

#[test]
fn a_configuration_that_cannot_be_used_leaves_the_agents_as_they_are_and_names_every_problem() {
    let bench = with_agent(Bench::new(), "");
    let web = Web::serve(&bench);
    configure(
        &bench,
        "agents:\n  - {name: mine, command: []}\njobs: {maxProcesses: none}\n",
    );
    web.hang_up();
    let refused = "SELECT payload FROM flow_events WHERE event_type = 'policy.refused'";
    let mut why = String::new();
    eventually("it is refused", || {
        why = bench
            .database()
            .query_row(refused, [], |row| row.get(0))
            .unwrap_or_default();
        !why.is_empty()
    });
    assert!(why.contains("agents") && why.contains("maxProcesses"), "{why}");
    let (_, answer) = web.post("/mcp", &web.session(json!({})), &legacy(1, "tools/list", json!({})));
    assert!(answer.to_string().contains("start-task"), "the agents stay");
    web.stop();
}

#[test]
fn agents_come_and_go_with_the_configuration() {
    let none = "command_policy: {path: /nonexistent}\n";
    let bench = Bench::new().config(none);
    let web = Web::serve(&bench);
    let session = web.session(json!({}));
    assert_eq!(offered(&web, &session), "");
    let program = saying(&bench, "a.sh", "here");
    configure(
        &bench,
        &format!(
            "command_policy: {{path: /usr/bin:/bin}}\n{}",
            agents(&[("mine", &program)])
        ),
    );
    web.hang_up();
    eventually("an agent is offered", || offered(&web, &session).contains("mine"));
    let job = start(&bench, "greet", &[]);
    assert_eq!(until(&bench, &job, "completed")["output"]["result"], "here");
    configure(&bench, none);
    web.hang_up();
    eventually("none is offered any more", || offered(&web, &session).is_empty());
    assert_eq!(shown(&bench, &["jobs", "show", &job, "--json"])["status"], "completed");
    told(&bench, &["jobs", "list"]);
    web.stop();
    bench.prove();
}
