//! Pull requests: which run made one, what is in it, and who reviews it.

use countersign_doubles::github::GitHub;
use serde_json::{Value, json};

use super::{SHOP, bench, configured, deliver, events, runs, told, until_worked_off, with_agent};
use crate::bench::Bench;
use crate::outside::{Serving, until};

fn shown(bench: &Bench) -> Value {
    let run: String = bench
        .database()
        .query_row("SELECT run_id FROM runs", [], |row| row.get(0))
        .unwrap();
    let output = bench.command().args(["runs", "show", &run, "--json"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn is_linked(run: &Value, kind: &str, id: &str) -> bool {
    let links = run["links"].as_array().unwrap();
    links
        .iter()
        .any(|link| link["target"] == json!({"type": kind, "id": id}))
}

#[test]
fn a_pull_request_is_tied_to_its_run_its_issue_and_its_documents_whichever_delivery_comes_first() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["run:dev"]);
    let bench = bench(&github);
    let serving = Serving::start(&bench);
    deliver(&serving, &github.labeled("d-1", SHOP, 7, "run:dev", "ana"));
    until("no run begins", || {
        bench.count("SELECT count(*) FROM runs WHERE status = 'running'") == 1
    });
    github.pull_request(SHOP, 8, "Closes #7", &[]);
    github.change_files(SHOP, 8, &["docs/guide.md", "docs/adr/0001-way.md", "src/main.rs"]);
    // From elsewhere anybody could say so.
    let fork = github.pulled("p-0", SHOP, 8, "opened", "mallory/shop", "mallory");
    assert_eq!(deliver(&serving, &fork), (200, "ignored".to_owned()));
    let closed = github.pulled("p-2", SHOP, 8, "closed", SHOP, "agent[bot]");
    let opened = github.pulled("p-1", SHOP, 8, "opened", SHOP, "agent[bot]");
    for _ in 0..5 {
        deliver(&serving, &closed);
        deliver(&serving, &opened);
    }
    until_worked_off(&bench);
    let run = shown(&bench);
    assert_eq!(run["pull_request_number"], 8, "{run}");
    for (kind, id) in [
        ("issue", "octo/shop#7"),
        ("pr", "octo/shop#8"),
        ("doc", "docs/guide.md"),
        ("adr", "docs/adr/0001-way.md"),
    ] {
        assert!(is_linked(&run, kind, id), "{kind} {id}: {run}");
    }
    assert!(!is_linked(&run, "doc", "src/main.rs"));
    let of_issue = "SELECT count(*) FROM links WHERE source_type = 'pr' AND source_id = 'octo/shop#8'
        AND target_type = 'issue' AND target_id = 'octo/shop#7' AND link_type = 'implements'";
    assert_eq!(bench.count(of_issue), 1);
    assert_eq!((runs(&bench), events(&bench, "run.pull_request.linked")), (1, 1));
    let map = bench.command().args(["runs", "map"]).output().unwrap();
    let map = String::from_utf8(map.stdout).unwrap();
    for text in ["octo/shop#7", "octo/shop#8", "docs/guide.md"] {
        assert!(map.replace('\\', "").contains(text), "{text}: {map}");
    }
}

#[test]
fn a_pull_request_that_is_told_of_behind_the_end_of_its_run_is_put_up_for_review_too() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["run:dev"]);
    github.pull_request(SHOP, 8, "Fixes #7", &[]);
    let bench = with_agent(Bench::new(), &github, "dev");
    let serving = Serving::start(&bench);
    deliver(&serving, &github.labeled("d-1", SHOP, 7, "run:dev", "ana"));
    until("the labels stay", || github.labels(SHOP, 7) == ["state:in-review"]);
    deliver(&serving, &github.pulled("p-1", SHOP, 8, "opened", SHOP, "agent[bot]"));
    until("it is not put up for review", || {
        github.labels(SHOP, 8) == ["state:in-review"]
    });
    until_worked_off(&bench);
    let run = shown(&bench);
    assert_eq!(
        (&run["pull_request_number"], &run["status"]),
        (&json!(8), &json!("succeeded"))
    );
    until("the comment does not name it", || {
        github.comments(SHOP, 7)[0].body.contains("Pull request: #8")
    });
    assert_eq!(github.comments(SHOP, 7).len(), 1);
    // No branch is checked out here, so that the pull request's own is the only one that is known.
    let session = "SELECT count(*) FROM agent_sessions WHERE pr_number = 8 AND branch_name = 'changes'
        AND pr_url = 'https://github.com/octo/shop/pull/8'";
    assert_eq!(bench.count(session), 1);
    // From now on it waits for the owner, until somebody closes it.
    let reviews = |kind: &str| {
        let told = told(&bench, kind);
        told.iter().filter(|it| it["wait_state"] == "owner_review").count()
    };
    assert_eq!(run["session"]["wait_state"], "owner_review", "{run}");
    assert_eq!((reviews("run.wait.paused"), reviews("run.wait.resumed")), (1, 0));
    for _ in 0..5 {
        deliver(&serving, &github.pulled("p-2", SHOP, 8, "closed", SHOP, "ana"));
    }
    until_worked_off(&bench);
    assert_eq!(shown(&bench)["session"]["wait_state"], Value::Null);
    assert_eq!((reviews("run.wait.paused"), reviews("run.wait.resumed")), (1, 1));
}

#[test]
fn a_reviewer_is_asked_for_with_a_label_of_the_pull_request() {
    let github = GitHub::start();
    github.pull_request(SHOP, 8, "no issue", &["need:reviewer", "run:dev"]);
    let bench = with_agent(Bench::new(), &github, "reviewer");
    let serving = Serving::start(&bench);
    let by_bot = github.pulled("p-0", SHOP, 8, "labeled", SHOP, "agent[bot]");
    assert_eq!(deliver(&serving, &by_bot), (200, "ignored".to_owned()));
    github.permit("rita", "read");
    deliver(&serving, &github.pulled("p-1", SHOP, 8, "labeled", SHOP, "rita"));
    until_worked_off(&bench);
    assert_eq!(runs(&bench), 0);
    deliver(&serving, &github.pulled("p-2", SHOP, 8, "labeled", SHOP, "ana"));
    until("no reviewer comes", || {
        bench.count(
            "SELECT count(*) FROM runs WHERE agent_key = 'reviewer' AND trigger_label = 'need:reviewer'
                 AND pull_request_number = 8 AND status = 'succeeded'",
        ) == 1
    });
    until("the label stays", || github.labels(SHOP, 8) == ["run:dev"]);
    until("it is not told", || github.comments(SHOP, 8).len() == 1);
}

/// An agent that says how it was set up.
const TELLING: &str = "#!/bin/sh\necho '{\"event\": \"TaskStarted\"}'\n\
    printf '{\"event\": \"AgentMessage\", \"message\": \"model %s effort %s\"}\\n' \
    \"$COUNTERSIGN_MODEL\" \"$COUNTERSIGN_REASONING_EFFORT\"\n\
    echo '{\"event\": \"TaskComplete\", \"result\": \"done\"}'\n";

fn telling(github: &GitHub) -> Bench {
    let bench = Bench::new();
    let agent = bench.program("agent.sh", TELLING);
    let more = format!(
        "agents:\n  - name: dev\n    type: exec\n    command: ['{}']\n    \
         eventParsing: {{format: jsonl, lineDelimited: true, eventTypeField: event}}\n",
        agent.display()
    );
    configured(bench, github, &more)
}

#[test]
fn model_and_reasoning_of_labels_reach_the_agent_and_a_discussion_changes_nothing() {
    let github = GitHub::start();
    let labels = [
        "run:dev",
        "mode:discussion",
        "[ai-model-gpt-9]",
        "[ai-reasoning-extra-high]",
    ];
    github.issue(SHOP, 7, &labels);
    let bench = telling(&github);
    let serving = Serving::start(&bench);
    deliver(&serving, &github.labeled("d-1", SHOP, 7, "run:dev", "ana"));
    until("the run does not end well", || {
        bench.count("SELECT count(*) FROM runs WHERE status = 'succeeded'") == 1
    });
    let said = "SELECT count(*) FROM job_events WHERE data LIKE '%model gpt-9 effort xhigh%'";
    assert_eq!(bench.count(said), 1);
    let config = "SELECT count(*) FROM job_sessions WHERE json_extract(config, '$.sandboxPolicy') = 'read-only'
        AND json_extract(config, '$.reasoningEffort') = 'xhigh' AND json_extract(config, '$.model') = 'gpt-9'";
    assert_eq!(bench.count(config), 1);
    let kept = "SELECT count(*) FROM agent_sessions WHERE reasoning_effort = 'xhigh' AND model = 'gpt-9'";
    assert_eq!(bench.count(kept), 1);
    let shown = shown(&bench);
    assert_eq!(
        (&shown["session"]["reasoning_effort"], &shown["session"]["model"]),
        (&json!("xhigh"), &json!("gpt-9"))
    );
    let prompt = "SELECT count(*) FROM jobs WHERE input LIKE '%This is a discussion%'";
    assert_eq!(bench.count(prompt), 1);
    assert_eq!(told(&bench, "run.profile.resolved")[0]["mode"], "discussion");
    until("the trigger stays", || {
        !github.labels(SHOP, 7).contains(&"run:dev".to_owned())
    });
    assert!(!github.labels(SHOP, 7).contains(&"state:in-review".to_owned()));
}

#[test]
fn an_effort_that_no_agent_knows_fails_the_run_before_it_begins() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["run:dev", "[ai-reasoning-most]"]);
    let bench = telling(&github);
    let serving = Serving::start(&bench);
    deliver(&serving, &github.labeled("d-1", SHOP, 7, "run:dev", "ana"));
    until("no run fails", || {
        bench.count("SELECT count(*) FROM runs WHERE status = 'failed' AND reason LIKE 'failed_precondition%'") == 1
    });
    assert_eq!(bench.count("SELECT count(*) FROM jobs"), 0);
}
