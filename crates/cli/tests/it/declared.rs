//! Tools that files declare, with the real binary: programs and services that do the work, what callers can
//! and cannot put into them, and files that change while calls come in.

mod confided;

use std::fs;

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::Server;
use crate::outside::{Service, Serving, until};

pub(crate) const TOKEN: &str = "X-Codex-MCP-Token: callback-s3cret\r\n";
pub(crate) const EXECUTOR: &str = "/api/v1/mcp/executor/callback";

/// A bench with one tool file of the operator's.
fn declaring(tools: &str, more: &str) -> Bench {
    holding(Bench::new(), tools, more)
}

pub(crate) fn holding(bench: Bench, tools: &str, more: &str) -> Bench {
    let bench = bench.config(&format!("tool_files: [\"tools/*.yaml\"]\n{more}"));
    let folder = bench.path("config/countersign/tools");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("own.yaml"), tools).unwrap();
    bench
}

pub(crate) fn argv(name: &str, approval: &str, properties: &str, command: &str, more: &str) -> String {
    format!(
        "tools:\n- name: {name}\n  description: a tool of this test\n  approval: {approval}\n  timeout_ms: 20000\n  \
         input_schema: {{type: object, properties: {properties}}}\n  executor: {{type: argv, command: {command}}}\n{more}"
    )
}

pub(crate) fn http(service: &Service, fields: &str, more: &str) -> String {
    format!(
        "tools:\n- name: notify\n  description: tells a service\n  approval: none\n  timeout_ms: 20000\n  \
         input_schema: {{type: object, properties: {{text: {{type: string}}, n: {{type: integer}}}}}}\n  \
         executor: {{type: http, url: \"http://{}/run\"{fields}}}\n{more}",
        service.address
    )
}

/// The result of a call whose answer has a form of its own: content, and whether it is an error.
fn call(server: &mut Server, tool: &str, arguments: Value) -> (Value, bool) {
    let id = server.call_later(tool, arguments);
    let answer = server.answer(id);
    let result = &answer["result"];
    assert!(result.is_object(), "{answer}");
    server.assert_promised(tool, &result["structuredContent"]);
    (result["structuredContent"].clone(), result["isError"] == true)
}

/// How often the record says that the work of a service ended so; it says nothing else of how it ended.
fn ended(bench: &Bench, how: &str) -> i64 {
    let all = format!("SELECT count(*) FROM flow_events WHERE event_type = 'mcp.tool.{how}'");
    let told = format!("{all} AND payload ->> '$.delegation_id' IS NOT NULL AND payload ->> '$.system' = 'executor'");
    assert_eq!(bench.count(&all), bench.count(&told));
    bench.count(&told)
}

fn names(server: &mut Server) -> Vec<String> {
    let id = server.request("tools/list", json!({}));
    let listed = server.answer(id);
    let tools = listed["result"]["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_declared_program_runs_confined_and_recorded_though_it_is_on_no_list() {
    Bench::wherever(|bench| {
        let tools = argv(
            "say",
            "none",
            "{text: {type: string}}",
            "[printf, '%s|', fixed, '{{ args.text }}']",
            "",
        );
        let bench = holding(bench, &tools, "command_policy: {allowlist: [ls]}\n");
        let mut server = Server::start(&bench);
        assert!(names(&mut server).contains(&"say".to_owned()));
        assert_eq!(server.call("say", json!({"text": "hi there"})).ok(), "fixed|hi there|");
        assert_eq!(
            server.call("say", json!({})).ok(),
            "fixed|",
            "an element without its argument is left out"
        );
        server
            .call("execute_process", json!({"file": "printf", "args": ["x"]}))
            .refused("COMMAND_NOT_ALLOWED");
        let closed =
            "SELECT count(*) FROM flow_events WHERE event_type = 'command.completed' AND payload ->> '$.tool' = 'say'
            AND payload ->> '$.command' = 'printf' AND payload ->> '$.status' = 'ok'";
        assert_eq!(bench.count(closed), 2);
        assert_eq!(
            bench.count("SELECT count(*) FROM flow_events WHERE event_type = 'tools.changed'"),
            1
        );
        server.end();
        bench.prove();
    });
}

#[test]
fn what_a_caller_says_stays_one_argument_whatever_it_is() {
    let properties = "{text: {type: string}, safe: {type: string, pattern: '^[a-z]+$'}}";
    let tools = argv(
        "say",
        "none",
        properties,
        "[printf, '[%s]', '{{ args.text }}', '{{ args.safe }}']",
        "",
    );
    let bench = declaring(&tools, "");
    let mut server = Server::start(&bench);
    for attack in [
        "; rm -rf /",
        "$(touch made)",
        "`touch made`",
        "--help",
        "a\nb",
        "{{ args.safe }}",
        "'\"\\",
        "-",
    ] {
        let outcome = server.call("say", json!({"text": attack}));
        assert_eq!(outcome.ok(), format!("[{attack}]"));
    }
    assert!(!bench.work().join("made").exists());
    let long = "x".repeat(200_000);
    for (bad, said) in [
        (json!({"text": "a\u{0}b"}), "NUL"),
        (json!({"text": long}), "longer than"),
        (json!({"text": 7}), "`text`"),
        (json!({"safe": "--option"}), "`safe`"),
        (json!({"other": "x"}), "other"),
    ] {
        let outcome = server.call("say", bad);
        outcome.refused("INVALID_ARGUMENTS");
        assert!(outcome.message().contains(said), "{}", outcome.message());
    }
    server.end();
    bench.prove();
}

#[test]
fn a_tool_whose_file_says_nothing_of_approval_waits_for_a_person() {
    let tools = argv("make", "required", "{}", "[touch, made]", "").replace("  approval: required\n", "");
    let bench = declaring(&tools, "approval_policy: {mode: never}\n");
    let mut server = Server::start(&bench);
    let details = server.asked(&bench, "make", json!({}));
    assert_eq!(details["command"], "touch made", "{details}");
    assert!(!bench.work().join("made").exists());
    let id = server.call_later("make", json!({}));
    let (question, _) = bench.question();
    let approved = bench.command().args(["approve", &question]).output().unwrap();
    assert!(approved.status.success(), "{approved:?}");
    server.result(id).ok();
    assert!(bench.work().join("made").exists());
    server.end();
    bench.prove();
}

#[test]
fn what_a_program_promises_to_write_is_the_answer() {
    let promise = "  output_schema: {type: object, properties: {n: {type: integer}}, required: [n]}\n";
    let tools = argv(
        "count",
        "none",
        "{text: {type: string}}",
        "[printf, '%s', '{{ args.text }}']",
        promise,
    );
    let bench = declaring(&tools, "");
    let mut server = Server::start(&bench);
    assert_eq!(
        call(&mut server, "count", json!({"text": "{\"n\": 3}"})),
        (json!({"n": 3}), false)
    );
    for broken in ["{\"n\": \"three\"}", "nothing of JSON"] {
        let (content, is_error) = call(&mut server, "count", json!({"text": broken}));
        assert_eq!(
            (&content["error_code"], is_error),
            (&json!("COMMAND_EXECUTION_FAILED"), true),
            "{content}"
        );
    }
    server.end();
}

#[test]
fn a_tool_is_used_no_more_often_than_its_file_says() {
    let tools = argv("once", "none", "{}", "['true']", "  limits: {max_total: 1}\n");
    let bench = declaring(&tools, "");
    let mut server = Server::start(&bench);
    server.call("once", json!({})).ok();
    server.call("once", json!({})).refused("LIMIT_EXCEEDED");
    server.end();
    bench.prove();
}

#[test]
fn a_call_that_is_given_up_while_it_waits_for_its_turn_is_no_use_of_its_tool() {
    let limits = "  limits: {max_total: 2, concurrency: 1}\n";
    let seconds = "{seconds: {type: string}}";
    let bench = declaring(
        &argv("rest", "none", seconds, "['sleep', '{{ args.seconds }}']", limits),
        "",
    );
    let mut server = Server::start(&bench);
    let first = server.call_later("rest", json!({"seconds": "15"}));
    let dispatched = || bench.count("SELECT count(*) FROM flow_events WHERE event_type = 'command.dispatched'");
    until("the first has its turn", || dispatched() == 1);
    let second = server.call_later("rest", json!({"seconds": "16"}));
    server.ping();
    for call in [second, first] {
        server.notify("notifications/cancelled", json!({"requestId": call}));
        let ended = || bench.count("SELECT count(*) FROM flow_events WHERE event_type = 'command.completed'");
        let expected = if call == second { 1 } else { 2 };
        until("it is given up", || ended() == expected);
    }
    server.call("rest", json!({"seconds": "0"})).ok();
    server.call("rest", json!({"seconds": "0"})).refused("LIMIT_EXCEEDED");
    assert_eq!(dispatched(), 2);
}

#[test]
fn another_file_is_in_force_without_a_new_start_and_a_broken_one_is_not() {
    let bench = declaring(&argv("first", "none", "{}", "['true']", ""), "");
    let mut server = Server::start(&bench);
    assert!(names(&mut server).contains(&"first".to_owned()));
    let file = bench.path("config/countersign/tools/own.yaml");
    fs::write(&file, argv("second", "none", "{}", "['true']", "")).unwrap();
    server.told("notifications/tools/list_changed");
    let now = names(&mut server);
    assert!(
        now.contains(&"second".to_owned()) && !now.contains(&"first".to_owned()),
        "{now:?}"
    );
    server.call("second", json!({})).ok();
    fs::write(&file, "tools: [{name: third}]\n").unwrap();
    let refused = || bench.count("SELECT count(*) FROM flow_events WHERE event_type = 'policy.refused'") == 1;
    until("a broken file is not told of", refused);
    assert!(names(&mut server).contains(&"second".to_owned()), "the old tools stay");
    let told = "SELECT payload ->> '$.added[0]' || ' ' || (payload ->> '$.removed[0]') FROM flow_events
        WHERE event_type = 'tools.changed' ORDER BY seq DESC LIMIT 1";
    let told: String = bench.database().query_row(told, [], |row| row.get(0)).unwrap();
    assert_eq!(told, "second first");
    server.end();
    bench.prove();
}

#[test]
fn a_repository_adds_no_tools_for_itself_unless_its_file_is_trusted() {
    let bench = Bench::new().config("workspace_root: .\n");
    bench.dir(".countersign");
    bench.file(".countersign/config.yaml", "tool_files: [own.yaml]\n");
    let own = bench.file(".countersign/own.yaml", argv("own", "none", "{}", "['true']", ""));
    let mut server = Server::start(&bench);
    assert!(!names(&mut server).contains(&"own".to_owned()));
    server.end();
    // The operator names it, but agents can write it.
    let bench = bench.config(&format!("workspace_root: .\ntool_files: [\"{}\"]\n", own.display()));
    let mut server = Server::start(&bench);
    assert!(!names(&mut server).contains(&"own".to_owned()));
    server.end();
    assert!(server.stderr().contains("can be written by agents"));
    let trusted = bench.command().args(["config", "trust"]).arg(&own).output().unwrap();
    assert!(trusted.status.success(), "{trusted:?}");
    let mut server = Server::start(&bench);
    assert!(names(&mut server).contains(&"own".to_owned()));
    server.end();
    fs::write(&own, argv("own", "none", "{}", "[touch, made]", "")).unwrap();
    let mut server = Server::start(&bench);
    assert!(
        !names(&mut server).contains(&"own".to_owned()),
        "changed, it is trusted no longer"
    );
    server.end();
}

#[test]
fn a_service_is_told_what_the_contract_says_and_its_result_is_the_answer() {
    let service = Service::answering("200 OK", json!({"status": "success", "result": {"sent": true}}));
    let fields = ", headers: {X-Key: outside-s3cret-value, X-Who: \"{{ args.text }}\"}, \
                  spec: {kind: note, count: \"{{ args.n }}\"}";
    let bench = declaring(&http(&service, fields, ""), "");
    let mut server = Server::start(&bench);
    let (content, is_error) = call(&mut server, "notify", json!({"text": "hi", "n": 3}));
    assert!(
        !is_error && content["status"] == "success" && content["result"] == json!({"sent": true}),
        "{content}"
    );
    let asked = service.asked();
    let [asked] = &asked[..] else {
        panic!("asked once: {asked:?}")
    };
    let body = &asked.body;
    assert_eq!(
        (
            asked.path.as_str(),
            &body["tool"]["name"],
            &body["arguments"],
            &body["spec"]
        ),
        (
            "/run",
            &json!("notify"),
            &json!({"text": "hi", "n": 3}),
            &json!({"kind": "note", "count": 3})
        )
    );
    assert_eq!(
        (&body["correlation_id"], &body["timeout_sec"]),
        (&content["correlation_id"], &json!(20))
    );
    let (content, is_error) = call(&mut server, "notify", json!({"text": "a\r\nEvil: 1"}));
    assert_eq!(
        (&content["error_code"], is_error),
        (&json!("INVALID_ARGUMENTS"), true),
        "{content}"
    );
    assert_eq!(ended(&bench, "applied"), 1);
    assert_eq!(
        bench.count("SELECT count(*) FROM flow_events WHERE payload LIKE '%outside-s3cret%'"),
        0
    );
    server.end();
    bench.prove();
}

#[test]
fn what_a_service_does_not_do_has_failed() {
    for (status, answer, said) in [
        ("500 Internal Server Error", Value::Null, "HTTP 500"),
        ("302 Found", Value::Null, "HTTP 302"),
        (
            "200 OK",
            json!({"status": "error", "result": "no such room"}),
            "no such room",
        ),
        ("202 Accepted", Value::Null, "does not say so"),
        ("200 OK", json!({"status": "done"}), "none of success"),
    ] {
        let service = Service::answering(status, answer);
        let bench = declaring(&http(&service, "", ""), "");
        let mut server = Server::start(&bench);
        let (content, is_error) = call(&mut server, "notify", json!({"text": "hi"}));
        assert_eq!(
            (&content["error_code"], is_error),
            (&json!("UPSTREAM_ERROR"), true),
            "{content}"
        );
        assert!(content["error_message"].as_str().unwrap().contains(said), "{content}");
        assert_eq!(ended(&bench, "failed"), 1);
    }
}

#[test]
fn a_service_answers_later_once_and_the_same_call_hears_it_after_a_new_start() {
    Bench::wherever(|bench| {
        let service = Service::answering("202 Accepted", Value::Null);
        let more = "listen: 127.0.0.1:0\ncallbacks: {token: callback-s3cret}\nanswer_within_ms: 300\n";
        let bench = holding(bench, &http(&service, ", async: true", ""), more);
        let serving = Serving::start(&bench);
        let mut server = Server::start(&bench);
        let (pending, is_error) = call(&mut server, "notify", json!({"text": "hi"}));
        assert!(!is_error && pending["status"] == "pending", "{pending}");
        server.end();
        let body = service.asked()[0].body.clone();
        let address = body["callback"]["url"].as_str().unwrap();
        assert!(
            address.contains(EXECUTOR) && address.contains(pending["request_id"].as_str().unwrap()),
            "{address}"
        );
        let correlation = &body["correlation_id"];
        let done = json!({"correlation_id": correlation, "status": "success", "result": {"seen": 1}, "tool": "notify"});
        assert_eq!(serving.post(EXECUTOR, "", &done).0, 401);
        for (wrong, status) in [
            (json!({"correlation_id": "another", "status": "success"}), 404),
            (json!({"correlation_id": correlation, "status": "maybe"}), 400),
            (
                json!({"correlation_id": correlation, "status": "success", "tool": "other"}),
                400,
            ),
        ] {
            assert_eq!(serving.post(EXECUTOR, TOKEN, &wrong).0, status, "{wrong}");
        }
        let path = format!("{EXECUTOR}?request_id={}", pending["request_id"].as_str().unwrap());
        let first = serving.post(&path, TOKEN, &done);
        assert_eq!(
            (first.0, &first.1["approval_state"]),
            (200, &json!("applied")),
            "{first:?}"
        );
        let failed = json!({"correlation_id": correlation, "decision": "failed", "reason": "changed my mind"});
        for repeated in [&done, &failed] {
            assert_eq!(serving.post(EXECUTOR, TOKEN, repeated), first, "the first end stands");
        }
        let mut server = Server::start(&bench);
        let (content, is_error) = call(&mut server, "notify", json!({"text": "hi"}));
        assert!(!is_error && content["result"] == json!({"seen": 1}), "{content}");
        assert_eq!(service.asked().len(), 1, "the same call was not sent again");
        assert_eq!(ended(&bench, "applied"), 1);
        let (again, _) = call(&mut server, "notify", json!({"text": "hi"}));
        assert_eq!(
            (&again["status"], service.asked().len()),
            (&json!("pending"), 2),
            "what was heard is over"
        );
        server.end();
        serving.stop();
        bench.prove();
    });
}

#[test]
fn an_act_that_nobody_answers_in_time_has_failed() {
    let service = Service::answering("202 Accepted", Value::Null);
    let tools = http(&service, ", async: true", "").replace("timeout_ms: 20000", "timeout_ms: 200");
    let bench = declaring(&tools, "callbacks: {token: callback-s3cret}\n");
    let mut server = Server::start(&bench);
    let (content, is_error) = call(&mut server, "notify", json!({"text": "hi"}));
    assert_eq!(
        (&content["error_code"], is_error),
        (&json!("COMMAND_TIMEOUT"), true),
        "{content}"
    );
    server.end();
    bench.prove();
}

fn feedback() -> Value {
    json!({"question": "Which branch shall I take?", "options": ["main", "next"], "allow_custom": true})
}

#[test]
fn the_owner_answers_at_the_terminal_and_the_agent_goes_on_with_it() {
    let bench = Bench::new();
    let mut server = Server::start(&bench);
    let id = server.call_later("owner.feedback.request", feedback());
    let (question, details) = bench.question();
    assert_eq!(details["options"], json!(["main", "next"]), "{details}");
    let answered = bench
        .command()
        .args(["approve", &question, "--option", "next"])
        .output()
        .unwrap();
    assert!(answered.status.success(), "{answered:?}");
    let answer = server.answer(id);
    let content = &answer["result"]["structuredContent"];
    assert_eq!(
        *content,
        json!({
            "request_id": question, "approval_state": "applied", "question": "Which branch shall I take?",
            "options": ["main", "next"], "dry_run": false, "message": "applied",
            "selected_option": "next", "selected_index": 1, "custom": null,
        })
    );
    let mut rehearsed = feedback();
    rehearsed["dry_run"] = json!(true);
    let (content, _) = call(&mut server, "owner.feedback.request", rehearsed);
    assert_eq!(
        (&content["message"], &content["request_id"]),
        (&json!("dry_run"), &Value::Null),
        "{content}"
    );
    for bad in [
        json!({"question": "Which branch shall I take?", "options": ["main"]}),
        json!({"question": "Which branch shall I take?", "options": ["main", "main"]}),
        json!({"question": "short", "options": ["main", "next"]}),
    ] {
        let (content, is_error) = call(&mut server, "owner.feedback.request", bad);
        assert_eq!(
            (&content["error_code"], is_error),
            (&json!("INVALID_ARGUMENTS"), true),
            "{content}"
        );
    }
    server.end();
    bench.prove();
}

#[test]
fn a_service_answers_a_question_with_one_of_its_options() {
    let service = Service::answering("200 OK", json!({"decision": "approve", "selected_option": "main"}));
    let approver = format!(
        "approvers: [{{name: duty, type: http, url: \"http://{}/ask\"}}]\n",
        service.address
    );
    let bench = Bench::new().config(&approver);
    let mut server = Server::start(&bench);
    let (content, is_error) = call(&mut server, "owner.feedback.request", feedback());
    assert_eq!(
        (&content["selected_option"], is_error),
        (&json!("main"), false),
        "{content}"
    );
    let body = &service.asked()[0].body;
    assert_eq!(body["arguments"]["options"], json!(["main", "next"]), "{body}");
    server.end();
    bench.prove();
}

#[test]
fn an_executor_answers_a_question_by_its_result() {
    let more = "listen: 127.0.0.1:0\ncallbacks: {token: callback-s3cret}\nanswer_within_ms: 300\n";
    let bench = Bench::new().config(more);
    let serving = Serving::start(&bench);
    let mut server = Server::start(&bench);
    let (pending, _) = call(&mut server, "owner.feedback.request", feedback());
    assert_eq!(pending["error_code"], "APPROVAL_PENDING", "{pending}");
    let id = pending["approval_id"].as_str().unwrap();
    let wrong = json!({"approval_request_id": id, "status": "success", "result": {"selected_option": "other"}});
    assert_eq!(serving.post(EXECUTOR, TOKEN, &wrong).0, 400);
    let said = json!({"approval_request_id": id, "status": "success", "result": {"custom": "neither"}});
    assert_eq!(serving.post(EXECUTOR, TOKEN, &said).0, 200);
    let (content, _) = call(&mut server, "owner.feedback.request", feedback());
    assert_eq!(
        (&content["custom"], &content["selected_option"]),
        (&json!("neither"), &Value::Null),
        "{content}"
    );
    server.end();
    serving.stop();
    bench.prove();
}

#[test]
fn what_a_tool_only_takes_in_is_told_to_its_service_and_to_nobody_else() {
    let pin = "7391";
    let password = "n0body may read/this";
    let echo = json!({"status": "success", "result": {"got": format!("{password} it was")}});
    let service = Service::answering("200 OK", echo);
    let tools = format!(
        "tools:\n- name: unlock\n  description: opens a door\n  approval: required\n  timeout_ms: 20000\n  \
         input_schema: {{type: object, properties: {{door: {{type: string}}, pin: {{type: string, writeOnly: true}}, \
         by: {{type: object, properties: {{words: {{type: string, format: password}}}}}}}}}}\n  \
         executor: {{type: http, url: \"http://{}/doors/{{{{ args.pin }}}}\", spec: {{with: \"{{{{ args.by }}}}\"}}}}\n",
        service.address
    );
    let bench = declaring(&tools, "").env("COUNTERSIGN_LOG", "trace");
    let mut server = Server::start(&bench);
    let arguments = json!({"door": "front", "pin": pin, "by": {"words": password}});
    let id = server.call_later("unlock", arguments.clone());
    let (question, details) = bench.question();
    assert_eq!(
        details["arguments"],
        json!({"door": "front", "pin": "[redacted]", "by": {"words": "[redacted]"}})
    );
    let approved = bench.command().args(["approve", &question]).output().unwrap();
    assert!(approved.status.success(), "{approved:?}");
    let answer = server.answer(id);
    let content = &answer["result"]["structuredContent"];
    assert_eq!(content["result"], json!({"got": "[redacted] it was"}), "{answer}");
    let asked = &service.asked()[0];
    assert_eq!(
        (asked.path.as_str(), &asked.body["arguments"]),
        ("/doors/7391", &arguments)
    );
    // Another pin is another question.
    let mut other = arguments;
    other["pin"] = json!("7392");
    let details = server.asked(&bench, "unlock", other);
    assert!(!details.to_string().contains("7392"), "{details}");
    server.end();
    let said = server.stderr();
    for column in ["details", "arguments_digest"] {
        let query =
            format!("SELECT count(*) FROM approvals WHERE {column} LIKE '%{pin}%' OR {column} LIKE '%read/this%'");
        assert_eq!(bench.count(&query), 0, "{column}");
    }
    let payloads = "SELECT count(*) FROM flow_events WHERE payload LIKE '%\"7391\"%' OR payload LIKE '%/7391%'
         OR payload LIKE '%read/this%'";
    assert_eq!(bench.count(payloads), 0);
    let results = "SELECT count(*) FROM delegated_executions WHERE detail LIKE '%read/this%'";
    assert_eq!((bench.count(results), said.contains(password)), (0, false));
    bench.prove();
}
