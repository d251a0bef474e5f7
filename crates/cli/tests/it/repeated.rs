//! Requests that come again after their act has ended, or was cut short: each acts once, whatever kind of tool it
//! calls, and is answered with what the first one came to.

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::declared::{EXECUTOR, TOKEN, argv, holding, http};
use crate::jobs::with_agent;
use crate::outside::{Service, until};
use crate::web::{Web, legacy};

const DUPLICATE: &str = "countersign/duplicate";

/// Calls a tool under an id: what it answered, and whether that is marked as told before.
#[track_caller]
fn call(web: &Web, session: &str, id: i64, tool: &str, arguments: &Value) -> (Value, bool) {
    let params = json!({"name": tool, "arguments": arguments});
    let (_, answer) = web.post("/mcp", session, &legacy(id, "tools/call", params));
    let result = &answer["result"];
    assert!(result.is_object(), "{answer}");
    let is_marked = result["_meta"][DUPLICATE] == true;
    let said =
        json!({"structured": result["structuredContent"], "text": result["content"], "error": result["isError"]});
    (said, is_marked)
}

/// A server in the place of one that was killed.
fn after(mut web: Web, bench: &Bench) -> Web {
    web.kill();
    Web::serve(bench)
}

#[test]
fn a_job_is_started_once_however_often_its_request_comes() {
    let bench = with_agent(Bench::new(), "");
    let web = Web::serve(&bench);
    let session = web.session(json!({}));
    let task = json!({"agent": "mine", "prompt": "greet"});
    let (first, is_marked) = call(&web, &session, 5, "start-task", &task);
    assert_eq!(
        (&first["structured"]["status"], is_marked),
        (&json!("accepted"), false),
        "{first}"
    );
    assert_eq!(call(&web, &session, 5, "start-task", &task), (first.clone(), true));
    let web = after(web, &bench);
    assert_eq!(call(&web, &session, 5, "start-task", &task), (first.clone(), true));
    assert_eq!(bench.count("SELECT count(*) FROM jobs"), 1);
    // Another request of the same words is another job.
    let (other, is_marked) = call(&web, &session, 6, "start-task", &task);
    assert!(!is_marked, "{other}");
    assert_ne!(other["structured"]["jobId"], first["structured"]["jobId"]);
    // What is said to a job is said once as well.
    let interrupt = json!({"jobId": first["structured"]["jobId"]});
    let (told, _) = call(&web, &session, 7, "interrupt-task", &interrupt);
    assert_eq!(call(&web, &session, 7, "interrupt-task", &interrupt), (told, true));
    web.stop();
    bench.prove();
}

#[test]
fn an_id_that_named_an_act_before_a_restart_still_tells_a_client_that_reuses_ids() {
    let bench = with_agent(Bench::new(), "");
    // What works until it is told to go need not wait.
    std::fs::write(bench.work().join("go"), "").unwrap();
    let web = Web::serve(&bench);
    let session = web.session(json!({}));
    let task = |prompt: &str| json!({"agent": "mine", "prompt": prompt});
    call(&web, &session, 5, "start-task", &task("greet"));
    let web = after(web, &bench);
    // The id means something else now, so the same words again may be another request.
    for prompt in ["work", "greet"] {
        let (accepted, is_marked) = call(&web, &session, 5, "start-task", &task(prompt));
        assert!(
            !is_marked && accepted["structured"]["status"] == "accepted",
            "{accepted}"
        );
    }
    assert_eq!(bench.count("SELECT count(*) FROM jobs"), 3);
    web.stop();
}

#[test]
fn what_a_person_allowed_is_done_once_and_asked_once() {
    let bench = with_agent(Bench::new(), "tools: {start-task: {approval: required}}\n");
    let web = Web::serve(&bench);
    let session = web.session(json!({}));
    let task = json!({"agent": "mine", "prompt": "greet"});
    let first = std::thread::scope(|scope| {
        let asked = scope.spawn(|| call(&web, &session, 5, "start-task", &task));
        let (question, _) = bench.question();
        let approved = bench.command().args(["approve", &question]).output().unwrap();
        assert!(approved.status.success(), "{approved:?}");
        asked.join().unwrap().0
    });
    assert_eq!(first["structured"]["status"], "accepted", "{first}");
    assert_eq!(call(&web, &session, 5, "start-task", &task), (first.clone(), true));
    let web = after(web, &bench);
    assert_eq!(call(&web, &session, 5, "start-task", &task), (first, true));
    assert_eq!(bench.count("SELECT count(*) FROM jobs"), 1);
    assert_eq!(bench.count("SELECT count(*) FROM approvals"), 1);
    web.stop();
    bench.prove();
}

#[test]
fn a_service_is_asked_once_for_each_request() {
    for (status, body, is_error) in [
        ("200 OK", json!({"status": "success", "result": {"seen": 1}}), false),
        ("500 Internal Server Error", json!({"reason": "broken"}), true),
    ] {
        let service = Service::answering(status, body);
        let bench = holding(Bench::new(), &http(&service, "", ""), "");
        let web = Web::serve(&bench);
        let session = web.session(json!({}));
        let words = json!({"text": "hi"});
        let (first, _) = call(&web, &session, 5, "notify", &words);
        assert_eq!(first["error"] == true, is_error, "{first}");
        assert_eq!(call(&web, &session, 5, "notify", &words), (first.clone(), true));
        let web = after(web, &bench);
        assert_eq!(call(&web, &session, 5, "notify", &words), (first, true));
        assert_eq!(service.asked().len(), 1);
        web.stop();
        bench.prove();
    }
}

#[test]
fn a_program_of_a_file_runs_once_for_each_request_and_is_told_again_as_it_promised() {
    let promise = "  output_schema: {type: object, properties: {n: {type: integer}}, required: [n]}\n";
    let tools = argv("count", "none", "{}", "[printf, '%s', '{\"n\": 3}']", promise);
    let bench = holding(Bench::new(), &tools, "");
    let web = Web::serve(&bench);
    let session = web.session(json!({}));
    let (first, _) = call(&web, &session, 5, "count", &json!({}));
    assert_eq!(first["structured"], json!({"n": 3}));
    assert_eq!(call(&web, &session, 5, "count", &json!({})), (first.clone(), true));
    let web = after(web, &bench);
    assert_eq!(call(&web, &session, 5, "count", &json!({})), (first, true));
    assert_eq!(bench.count("SELECT count(*) FROM commands"), 1);
    web.stop();
    bench.prove();
}

#[test]
fn a_request_that_was_told_to_come_again_hears_the_end_and_hears_it_again() {
    let service = Service::answering("202 Accepted", Value::Null);
    let more = "callbacks: {token: callback-s3cret}\nanswer_within_ms: 1000\n";
    let bench = holding(Bench::new(), &http(&service, ", async: true", ""), more);
    let web = Web::serve(&bench);
    let session = web.session(json!({}));
    let words = json!({"text": "hi"});
    let pending = |web: &Web| {
        let (said, _) = call(web, &session, 5, "notify", &words);
        assert_eq!(said["structured"]["status"], "pending", "{said}");
    };
    pending(&web);
    pending(&web);
    let web = after(web, &bench);
    pending(&web);
    // A server that dies while it waits takes nothing of that back.
    let params = json!({"name": "notify", "arguments": {"text": "cut"}});
    let _lost = web.stream("POST", "/mcp", &session, &legacy(6, "tools/call", params));
    service.until_asked(2);
    let web = after(web, &bench);
    pending(&web);
    let cut = call(&web, &session, 6, "notify", &json!({"text": "cut"})).0;
    assert_eq!(cut["structured"]["status"], "pending", "{cut}");
    let correlation = service.asked()[0].body["correlation_id"].clone();
    let done = json!({"correlation_id": correlation, "status": "success", "result": {"seen": 1}});
    assert_eq!(web.rest(EXECUTOR, TOKEN, &done).0, 200);
    let (told, is_marked) = call(&web, &session, 5, "notify", &words);
    assert_eq!(
        (&told["structured"]["result"], is_marked),
        (&json!({"seen": 1}), true),
        "{told}"
    );
    let web = after(web, &bench);
    assert_eq!(call(&web, &session, 5, "notify", &words), (told, true));
    assert_eq!(service.asked().len(), 2, "each was sent once");
    web.stop();
    bench.prove();
}

#[test]
fn an_act_cut_by_a_restart_is_told_as_such_and_not_done_again() {
    let service = Service::with(|_| {
        std::thread::sleep(std::time::Duration::from_secs(600));
        ("200 OK", String::new())
    });
    let bench = holding(Bench::new(), &http(&service, "", ""), "");
    let web = Web::serve(&bench);
    let session = web.session(json!({}));
    let words = json!({"text": "hi"});
    let params = json!({"name": "notify", "arguments": words});
    let _lost = web.stream("POST", "/mcp", &session, &legacy(5, "tools/call", params));
    service.until_asked(1);
    until("the act is not open", || {
        bench.count("SELECT count(*) FROM open_acts") == 1
    });
    let web = after(web, &bench);
    let (told, is_marked) = call(&web, &session, 5, "notify", &words);
    assert_eq!(
        (&told["structured"]["error_code"], is_marked),
        (&json!("ABANDONED"), true),
        "{told}"
    );
    assert_eq!(service.asked().len(), 1);
    web.stop();
    bench.prove();
}
