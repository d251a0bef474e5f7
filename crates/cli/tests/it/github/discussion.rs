//! `mode:discussion`: whoever only talks can change nothing, and what was agreed is gone on with.

use std::fs;

use countersign_doubles::github::faults::Fault;
use countersign_doubles::github::{GitHub, TOKEN};
use serde_json::json;

use super::{SECRET, SHOP, deliver, events, runs, told, until_worked_off};
use crate::bench::Bench;
use crate::outside::{Serving, until};
use crate::runs::{Agent, shown, token};
use crate::web::Web;

/// An agent that tries to write and to publish, and says what came of it. It waits for `go` where it talks, and for
/// ever where `hang` is there.
const AGENT: &str = r#"#!/bin/sh
echo '{"event": "TaskStarted"}'
(echo tried > made; echo tried > ../work/made; echo 'ref: refs/heads/agent/7' > .git/HEAD) 2>/dev/null
case $* in
*"This is a discussion"*) while [ -e "$0" ] && [ ! -e go ]; do sleep 0.05; done ;;
*) if [ -e hang ]; then while [ -e "$0" ]; do sleep 0.05; done; fi ;;
esac
made=$(cat made 2>/dev/null)
echo "{\"event\": \"TaskComplete\", \"result\": \"with [$CODEXK8S_GIT_BOT_TOKEN$GITHUB_TOKEN$KUBECONFIG] made [$made], \`\`\` @octo\"}"
"#;

fn bench(github: &GitHub, agents: &[&str]) -> Bench {
    let bench = Bench::new();
    let agent = bench.program("agent.sh", AGENT);
    let agents: String = agents
        .iter()
        .map(|key| {
            format!(
                "  - {{name: {key}, type: exec, command: ['{}'], env: {{GITHUB_TOKEN: 'of-the-definition'}}, \
                 eventParsing: {{format: jsonl, lineDelimited: true, eventTypeField: event}}}}\n",
                agent.display()
            )
        })
        .collect();
    let agents = if agents.is_empty() { "  []\n".to_owned() } else { agents };
    bench.config(&format!(
        "listen: 127.0.0.1:0\napproval_policy: {{mode: never}}\n\
         github: {{api_url: '{}', token: {TOKEN}, agent_token: 'of-the-agents', webhook_secret: {SECRET}}}\n\
         kubernetes: {{agent_kubeconfig: '/agents/{{namespace}}.yaml'}}\n\
         policies:\n  projects: {{shop: {{repositories: [{SHOP}], namespace: shop-dev}}}}\n  \
         labels: {{'run:dev': {{runtime: full-env}}}}\nagents:\n{agents}",
        github.url()
    ))
}

fn run(bench: &Bench, status: &str, is_talk: bool) -> i64 {
    let not = if is_talk { "" } else { "NOT" };
    bench.count(&format!(
        "SELECT count(*) FROM runs WHERE status = '{status}' AND labels {not} LIKE '%mode:discussion%'"
    ))
}

#[test]
fn whoever_only_talks_can_write_nothing_and_publish_nothing_and_goes_on_with_it_once_the_label_is_gone() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["run:dev", "mode:discussion"]);
    let bench = bench(&github, &["dev"]);
    bench.dir(".git");
    bench.file(".git/HEAD", "ref: refs/heads/main\n");
    bench.file("go", "");
    let serving = Serving::start(&bench);
    deliver(&serving, &github.labeled("d-1", SHOP, 7, "run:dev", "ana"));
    until("it is not talked", || run(&bench, "succeeded", true) == 1);
    assert!(!bench.work().join("made").exists());
    let head = || fs::read_to_string(bench.work().join(".git/HEAD")).unwrap();
    assert_eq!(head(), "ref: refs/heads/main\n");
    // What it has to say is put under the issue for it, where it mentions nobody.
    until("there is no answer", || {
        let comments = github.comments(SHOP, 7);
        comments.iter().any(|it| {
            it.body.contains("````text\nwith [] made [], ``` @octo\n````") && it.body.contains("Have it done")
        })
    });
    until("the label stays", || events(&bench, "label.applied") == 1);
    assert_eq!(github.labels(SHOP, 7), ["mode:discussion"]);
    let session = "SELECT count(*) FROM agent_sessions WHERE template_kind = 'discussion' AND template_locale = 'en'
        AND branch_name = 'main'";
    assert_eq!(bench.count(session), 1);

    github.label_by("ana", SHOP, 7, &["run:dev"], &["mode:discussion"]);
    deliver(&serving, &github.unlabeled("d-2", SHOP, 7, "mode:discussion", "ana"));
    deliver(&serving, &github.labeled("d-3", SHOP, 7, "run:dev", "ana"));
    until("nothing is done", || run(&bench, "succeeded", false) == 1);
    until_worked_off(&bench);
    assert_eq!(fs::read_to_string(bench.work().join("made")).unwrap(), "tried\n");
    assert_eq!((runs(&bench), head().as_str()), (2, "ref: refs/heads/agent/7\n"));
    let done = bench.column("SELECT result || ' for ' || input FROM jobs ORDER BY created_at_ms");
    assert!(
        done[1].contains("/agents/shop-dev.yaml] made [tried]") && done[1].contains("The discussion is over"),
        "{done:?}"
    );
    // It is the same conversation.
    assert_eq!(bench.count("SELECT count(*) FROM job_sessions"), 1);
    let told = "SELECT count(*) FROM agent_sessions WHERE template_kind = 'work' AND branch_name = 'agent/7'
        AND session_id = (SELECT conversation_id FROM job_sessions)";
    assert_eq!(bench.count(told), 1);
    bench.prove();
}

#[test]
fn tools_and_commands_of_a_discussion_change_nothing_whatever_policy_gives_to_others() {
    let github = GitHub::start();
    github.issue(SHOP, 9, &["run:ops", "mode:discussion"]);
    let bench = bench(&github, &[]);
    bench.repository();
    let web = Web::serve(&bench);
    let url = web.url();
    let address = url.trim_start_matches("http://").trim_end_matches("/mcp");
    let delivery = github.labeled("d-1", SHOP, 9, "run:ops", "ana");
    assert_eq!(delivery.send(address, SECRET).0, 202);
    until("it does not begin", || run(&bench, "running", true) == 1);
    let run = shown(&bench, &["runs", "list", "--json"])[0].clone();
    let agent = Agent::come(&web, &token(&bench, &run, "talker"));
    let tools = agent.tools();
    for listed in [
        "execute_command",
        "github_labels_list",
        "run_status_report",
        "owner.feedback.request",
    ] {
        assert!(tools.contains(&listed.to_owned()), "{listed}: {tools:?}");
    }
    assert!(
        !tools
            .iter()
            .any(|tool| tool.starts_with("github_labels_") && tool != "github_labels_list")
    );
    // It is not there: no other answer than to a tool that never was.
    let error = |tool: &str| agent.call(tool, json!({"labels": ["x"]}))["error"]["message"].to_string();
    assert_eq!(
        error("github_labels_add").replace("github_labels_add", "T"),
        error("nothing_of_the_kind").replace("nothing_of_the_kind", "T")
    );
    let hidden =
        "SELECT count(*) FROM flow_events WHERE event_type = 'tool.called' AND payload LIKE '%mode:discussion%'";
    assert_eq!(bench.count(hidden), 1, "the record knows the difference");
    let refused = |arguments: serde_json::Value| {
        let answer = agent.call("execute_command", arguments);
        let content = answer["result"]["structuredContent"].clone();
        (
            content["error_code"].as_str().unwrap_or_default().to_owned(),
            content["error_message"].to_string(),
        )
    };
    for (arguments, word) in [
        (json!({"command": "git push origin main"}), "git push"),
        (json!({"command": "ls && git -C . commit -m x"}), "git commit"),
        (json!({"command": "ls", "network": "allow"}), "no network"),
        (json!({"command": "ls", "sandbox": "workspace-write"}), "read only"),
    ] {
        let (code, message) = refused(arguments.clone());
        assert!(
            code == "POLICY_DENIED" && message.contains(word),
            "{arguments}: {code} {message}"
        );
    }
    // What no word tells, the kernel refuses.
    let (code, _) = refused(json!({"command": "sh -c 'echo x > made'"}));
    assert_eq!(code, "COMMAND_EXIT_NON_ZERO");
    assert!(!bench.work().join("made").exists());
    assert_eq!(
        agent.call("execute_command", json!({"command": "cat tracked"}))["result"]["isError"],
        false
    );
    let by =
        "SELECT count(*) FROM flow_events WHERE event_type = 'command.completed' AND payload LIKE '%mode:discussion%'";
    assert!(bench.count(by) >= 4);
    web.stop();
    bench.prove();
}

#[test]
fn a_run_at_work_is_called_back_when_its_issue_is_to_be_talked_about_and_goes_on_as_talk() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["run:dev", "run:qa"]);
    let bench = bench(&github, &["dev"]);
    let (hang, go) = (bench.file("hang", ""), bench.work().join("go"));
    let serving = Serving::start(&bench);
    deliver(&serving, &github.labeled("d-1", SHOP, 7, "run:dev", "ana"));
    until("it does not work", || run(&bench, "running", false) == 1);
    deliver(&serving, &github.labeled("d-2", SHOP, 7, "run:qa", "ana"));
    until("it does not wait", || run(&bench, "pending", false) == 1);
    github.permit("rita", "read");
    deliver(&serving, &github.labeled("d-3", SHOP, 7, "mode:discussion", "ana"));
    until_worked_off(&bench);
    assert_eq!(run(&bench, "running", false), 1, "it does not stand on the issue");
    github.label_by("ana", SHOP, 7, &["mode:discussion"], &[]);
    deliver(&serving, &github.labeled("d-4", SHOP, 7, "mode:discussion", "rita"));
    until_worked_off(&bench);
    assert_eq!(run(&bench, "running", false), 1, "rita may not write");
    let put_on = github.labeled("d-5", SHOP, 7, "mode:discussion", "ana");
    for _ in 0..5 {
        deliver(&serving, &put_on);
    }
    until("it works on", || run(&bench, "cancelled", false) == 1);
    until_worked_off(&bench);
    // The one that waited is of the same kind now, and has its turn first.
    let waiting = "SELECT count(*) FROM runs WHERE trigger_label = 'run:qa' AND labels LIKE '%mode:discussion%'";
    assert_eq!((bench.count(waiting), runs(&bench)), (1, 3));
    let turned = told(&bench, "run.profile.resolved");
    assert!(
        turned
            .iter()
            .any(|it| it["mode"] == "discussion" && it["trigger_label"] == "run:qa")
    );
    until("its agent stays", || {
        bench.count("SELECT count(*) FROM jobs WHERE status = 'running'") == 0
    });
    let qa = bench.column("SELECT run_id FROM runs WHERE trigger_label = 'run:qa'");
    shown(&bench, &["runs", "cancel", &qa[0], "--reason", "enough", "--json"]);
    until("it is not talked", || run(&bench, "running", true) == 1);

    // The label goes while it talks, and what set it off still stands: the work comes behind it.
    fs::remove_file(hang).unwrap();
    github.label_by("ana", SHOP, 7, &[], &["mode:discussion"]);
    deliver(&serving, &github.unlabeled("d-6", SHOP, 7, "mode:discussion", "ana"));
    until("no work waits", || run(&bench, "pending", false) == 1);
    until_worked_off(&bench);
    fs::write(go, "").unwrap();
    until("nothing is done", || run(&bench, "succeeded", false) == 1);
    assert_eq!((run(&bench, "succeeded", true), runs(&bench)), (1, 4));
    let same = "SELECT count(DISTINCT session_id) FROM agent_sessions WHERE status = 'succeeded'";
    assert_eq!((bench.count(same), events(&bench, "run.canceled")), (1, 2));
}

#[test]
fn trouble_with_github_does_not_lose_the_discussion_that_a_run_goes_on_as() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["run:dev"]);
    github.pull_request(SHOP, 8, "Closes #7", &[]);
    let bench = bench(&github, &["dev"]);
    bench.file("hang", "");
    let serving = Serving::start(&bench);
    deliver(&serving, &github.labeled("d-1", SHOP, 7, "run:dev", "ana"));
    until("it does not work", || run(&bench, "running", false) == 1);
    deliver(&serving, &github.pulled("p-1", SHOP, 8, "opened", SHOP, "ana"));
    until("it is not tied", || {
        bench.count("SELECT count(*) FROM runs WHERE pull_request_number = 8") == 1
    });
    github.label_by("ana", SHOP, 7, &["mode:discussion"], &[]);
    // As often as one call tries.
    for _ in 0..4 {
        github.next("GET", "/issues/8/labels", Fault::Cut);
    }
    deliver(&serving, &github.labeled("d-2", SHOP, 7, "mode:discussion", "ana"));
    until("it is not talked", || run(&bench, "running", true) == 1);
    assert_eq!((run(&bench, "cancelled", false), runs(&bench)), (1, 2));
}
