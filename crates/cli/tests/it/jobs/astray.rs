//! Agents of jobs that try to be somebody else: to leave their token at home and come in as anybody of this machine does, or to
//! be started otherwise than their definition says.

use std::fs;
use std::process::Command;

use serde_json::json;

use super::{start, until};
use crate::bench::Bench;
use crate::client::eventually;
use crate::web::Web;

/// Comes to a server at `$1` with the header `$2`, and says what it was answered.
const COME: &str = r#"#!/bin/bash
hello='{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}'
exec 3<>"/dev/tcp/${1%:*}/${1##*:}"
printf 'POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nConnection: close\r\n%sContent-Length: %s\r\n\r\n%s' \
    "${3:-/mcp}" "$1" "$2" "${#hello}" "$hello" >&3
read -r _ status _ <&3
echo "$status"
"#;

/// An agent that comes as nobody, as itself, as nobody to the routes for people, and as nobody by a child that carries nothing of it.
const AGENT: &str = r#"#!/bin/bash
echo '{"event": "TaskStarted"}'
address=${COUNTERSIGN_MCP_URL#http://}
address=${address%/mcp}
own=$'Authorization: Bearer '$COUNTERSIGN_TOKEN$'\r\n'
came="$(./come "$address" '') $(./come "$address" "$own") $(./come "$address" '' /api/v1/commands) $(env -i bash ./come "$address" '')"
touch came
while [ -e "$0" ] && [ ! -e go ]; do sleep 0.05; done
echo "{\"event\": \"TaskComplete\", \"result\": \"$came\"}"
"#;

fn bench_with(bench: Bench, agent: &str) -> Bench {
    let agent = bench.program("agent.sh", agent);
    bench.program("come", COME);
    let config = format!(
        "agents:\n  - name: mine\n    command: ['{}', run]\n    \
         eventParsing: {{format: jsonl, lineDelimited: true, eventTypeField: event}}\n",
        agent.display(),
    );
    bench.config(&config)
}

#[test]
fn an_agent_that_leaves_its_token_at_home_is_nobody() {
    Bench::each(|bench| {
        let bench = bench_with(bench, AGENT);
        let web = Web::serve(&bench);
        let job = start(&bench, "go", &[]);
        eventually("it has tried", || bench.work().join("came").exists());
        // Others come as before, also those of the agent's own user.
        web.session(json!({}));
        let mut neighbour: Command = bench.as_agents_do("bash");
        let neighbour = neighbour.args(["./come", &web.address, ""]).output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&neighbour.stdout).trim(),
            "200",
            "{neighbour:?}"
        );
        bench.file("go", "");
        let ended = until(&bench, &job, "completed");
        assert_eq!(ended["output"]["result"], "401 200 401 401", "{ended}");
        web.stop();
        let refused =
            "SELECT count(*) FROM flow_events WHERE payload LIKE '%come with the token that they were given%'";
        assert!(bench.count(refused) > 0, "it is in the record");
        bench.prove();
    });
}

#[test]
fn an_agent_does_not_work_where_it_must_not_look() {
    let looking = r#"#!/bin/bash
echo "{\"event\": \"TaskComplete\", \"result\": \"sees $(ls -A . .. | tr '\n' ' ')\"}"
"#;
    Bench::each(|bench| {
        let agent = bench.program("agent.sh", looking);
        let workspace = bench.path("");
        let bench = bench.config(&format!(
            "workspace_root: '{}'\nagents:\n  - name: mine\n    command: ['{}']\n    \
             eventParsing: {{format: jsonl, lineDelimited: true, eventTypeField: event}}\n",
            workspace.display(),
            agent.display(),
        ));
        let web = Web::serve(&bench);
        let session = web.session(json!({}));
        // The state directory, what is in it, and the operator's configuration.
        for (at, place) in ["state", "state/sessions", "config/countersign"].iter().enumerate() {
            fs::create_dir_all(bench.path(place)).unwrap();
            let task = json!({"agent": "mine", "prompt": "look", "cwd": bench.path(place)});
            let refused = super::call(&web, &session, i64::try_from(at).unwrap() + 1, "start-task", task);
            assert_eq!(refused["error_code"], "CWD_NOT_ALLOWED", "{place}: {refused}");
        }
        web.stop();
    });
}

#[test]
fn an_agent_is_to_write_nothing_where_no_root_is() {
    let done = "#!/bin/bash\necho '{\"event\": \"TaskComplete\", \"result\": \"done\"}'\n";
    let bench = bench_with(Bench::new(), done);
    let inside = bench.dir("monorepo");
    let bench = bench.env("ALLOWED_CWD_ROOTS", &inside);
    let web = Web::serve(&bench);
    let session = web.session(json!({}));
    for (at, (cwd, sandbox)) in [(None, "read-only"), (Some(inside), "workspace-write")]
        .into_iter()
        .enumerate()
    {
        let task = json!({"agent": "mine", "prompt": "work", "cwd": cwd});
        let accepted = super::call(&web, &session, i64::try_from(at).unwrap() + 1, "start-task", task);
        let ended = until(&bench, accepted["jobId"].as_str().unwrap(), "completed");
        assert_eq!(ended["session"]["config"]["sandboxPolicy"], sandbox, "{ended}");
    }
    web.stop();
}

#[test]
fn an_agent_does_not_work_among_what_steers_git_and_ourselves() {
    let bench = super::bench();
    bench.repository();
    bench.dir(".countersign");
    let web = Web::serve(&bench);
    let session = web.session(json!({}));
    for (at, place) in [".git", ".git/hooks", ".countersign"].iter().enumerate() {
        let task = json!({"agent": "mine", "prompt": "work", "cwd": place});
        let refused = super::call(&web, &session, i64::try_from(at).unwrap() + 1, "start-task", task);
        assert_eq!(refused["error_code"], "CWD_NOT_ALLOWED", "{place}: {refused}");
    }
    web.stop();
}

#[test]
fn agents_that_take_every_stream_leave_those_of_people_alone() {
    let bench = super::bench();
    let web = Web::serve(&bench);
    let session = web.session(json!({}));
    let accepted = super::call(
        &web,
        &session,
        1,
        "start-task",
        json!({"agent": "mine", "prompt": "work"}),
    );
    let job = accepted["jobId"].as_str().unwrap();
    let events = format!("/api/v1/jobs/{job}/events");
    let follow = |path: &str, headers: &str| {
        let mut stream = web.stream("GET", path, headers, &json!(null));
        (stream.head(), stream)
    };
    let mut taken = Vec::new();
    let refused = loop {
        let (head, stream) = follow(&events, "");
        if !head.contains(" 200 ") {
            break head;
        }
        taken.push(stream);
    };
    assert!(refused.contains(" 503 ") || refused.contains(" 429 "), "{refused}");
    let viewer = crate::rest::office::token(&bench, "viewer", "watcher");
    let bearer = format!("Authorization: Bearer {viewer}\r\n");
    for path in ["/api/v1/events", &events] {
        let (head, _stream) = follow(path, &bearer);
        assert!(head.contains(" 200 "), "{path}: {head}");
    }
    bench.file("go", "");
    until(&bench, job, "completed");
    web.stop();
}

#[test]
fn a_prompt_is_never_an_option_of_its_agent() {
    let told = r#"#!/bin/bash
case $2 in
-*) result=option ;;
*) result="text:$2" ;;
esac
echo "{\"event\": \"TaskComplete\", \"result\": \"$result\"}"
"#;
    let bench = bench_with(Bench::new(), told);
    let web = Web::serve(&bench);
    let session = web.session(json!({}));
    for (at, prompt) in ["--dangerously-skip-permissions", "-", "- a list", "plain"]
        .iter()
        .enumerate()
    {
        let task = json!({"agent": "mine", "prompt": prompt});
        let accepted = super::call(&web, &session, i64::try_from(at).unwrap() + 1, "start-task", task);
        let ended = until(&bench, accepted["jobId"].as_str().unwrap(), "completed");
        let said = ended["output"]["result"].as_str().unwrap();
        assert_eq!(
            said.strip_prefix("text:").map(str::trim_start),
            Some(*prompt),
            "{ended}"
        );
    }
    web.stop();
}
