//! Services that are asked over HTTP, with the real binary: what they say decides, what they do not say
//! decides nothing.

use std::net::TcpListener;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::Server;
use crate::outside::{Service, Serving, free_port, until};

const TOKEN: &str = "X-Codex-MCP-Token: callback-s3cret\r\n";

fn touch() -> Value {
    json!({"file": "touch", "args": ["made"], "justification": "the build needs it"})
}

fn made(bench: &Bench) -> bool {
    bench.work().join("made").exists()
}

/// A bench that asks a service, with more fields of the approver and more settings.
fn asking(address: &str, fields: &str, more: &str) -> Bench {
    Bench::new().config(&format!(
        "approvers: [{{name: duty, type: http, url: \"http://{address}/ask\"{fields}}}]\n{more}"
    ))
}

/// How asking went, oldest first.
fn asked(bench: &Bench) -> Vec<String> {
    let database = bench.database();
    let query = "SELECT event_type || ' ' || (payload ->> '$.outcome') FROM flow_events
        WHERE event_type LIKE 'approver.%' ORDER BY seq";
    let mut statement = database.prepare(query).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn a_service_that_is_asked_decides_at_once() {
    let service = Service::answering("200 OK", json!({"decision": "approve", "reason": "on call"}));
    let bench = asking(&service.address, "", "");
    let mut server = Server::start(&bench);
    server.call("execute_process", touch()).ok();
    assert!(made(&bench));
    let [question] = &service.asked()[..] else {
        panic!("asked once: {:?}", service.asked())
    };
    assert_eq!(question.path, "/ask");
    let body = &question.body;
    assert_eq!(
        (&body["tool"], &body["arguments"]["command"], &body["justification"]),
        (
            &json!("execute_process"),
            &json!("touch made"),
            &json!("the build needs it")
        )
    );
    for text in ["approval_request", "risk_assessment"] {
        let length = body[text].as_str().unwrap().chars().count();
        assert!((10..=500).contains(&length), "{body}");
    }
    assert!(body.get("callback").is_none(), "it answers at once: {body}");
    let decided = "SELECT count(*) FROM flow_events WHERE event_type = 'approval.approved' AND actor_id = 'duty'
        AND payload ->> '$.credential' = 'approver:duty' AND payload ->> '$.reason' = 'on call'";
    assert_eq!(bench.count(decided), 1);
    assert_eq!(asked(&bench), ["approver.asked reached"]);
    server.end();
    bench.prove();
}

#[test]
fn what_a_service_refuses_is_refused_with_its_reason() {
    for (status, answer, said) in [
        (
            "200 OK",
            json!({"decision": "deny", "reason": "not on a Friday"}),
            "not on a Friday",
        ),
        ("200 OK", json!({"decision": "error"}), "could not get an answer"),
        ("403 Forbidden", Value::Null, "HTTP 403 Forbidden"),
        (
            "500 Internal Server Error",
            json!({"decision": "approve"}),
            "HTTP 500 Internal Server Error",
        ),
        ("202 Accepted", Value::Null, "is not configured so"),
        (
            "200 OK",
            json!({"decision": "approve", "correlation_id": "x"}),
            "another",
        ),
        ("200 OK", json!("yes"), "not a JSON object"),
    ] {
        let service = Service::answering(status, answer);
        let bench = asking(&service.address, "", "");
        let mut server = Server::start(&bench);
        let outcome = server.call("execute_process", touch());
        outcome.refused("APPROVAL_DENIED");
        let message = outcome.message();
        assert!(message.contains(said) && message.contains("`duty`"), "{message}");
        assert!(!made(&bench));
    }
}

#[test]
fn a_redirect_is_not_followed() {
    let trap = Service::answering("200 OK", json!({"decision": "approve"}));
    let elsewhere = trap.address.clone();
    let status: &'static str =
        Box::leak(format!("307 Temporary Redirect\r\nLocation: http://{elsewhere}/").into_boxed_str());
    let service = Service::answering(status, Value::Null);
    let bench = asking(&service.address, "", "");
    let mut server = Server::start(&bench);
    let outcome = server.call("execute_process", touch());
    outcome.refused("APPROVAL_DENIED");
    assert!(
        outcome.message().contains("redirects are not followed"),
        "{}",
        outcome.message()
    );
    assert!(trap.asked().is_empty() && !made(&bench));
}

#[test]
fn an_approver_that_cannot_be_reached_decides_nothing_and_is_asked_once_it_can_be() {
    let port = free_port();
    let bench = asking(&format!("127.0.0.1:{port}"), "", "");
    let mut server = Server::start(&bench);
    let call = server.call_later("execute_process", touch());
    let (question, _) = bench.question();
    until("it is not recorded", || {
        asked(&bench) == ["approver.unreachable retrying"]
    });
    assert_eq!(bench.approval_state(&question), "pending");
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let service = Service::on(listener, |_| ("200 OK", json!({"decision": "approve"}).to_string()));
    server.result(call).ok();
    assert!(made(&bench));
    assert_eq!(service.asked().len(), 1);
    assert_eq!(
        asked(&bench),
        ["approver.unreachable retrying", "approver.asked reached"]
    );
}

#[test]
fn others_decide_while_an_approver_cannot_be_reached() {
    let bench = asking(&format!("127.0.0.1:{}", free_port()), "", "");
    let mut server = Server::start(&bench);
    let call = server.call_later("execute_process", touch());
    let (question, _) = bench.question();
    let approve = bench.command().args(["approve", &question]).output().unwrap();
    assert!(approve.status.success());
    server.result(call).ok();
    assert!(made(&bench));
}

#[test]
fn a_slow_approver_decides_nothing_and_is_not_asked_twice() {
    let service = Service::with(|_| {
        std::thread::sleep(Duration::from_millis(1_500));
        ("200 OK", json!({"decision": "deny"}).to_string())
    });
    let bench = asking(&service.address, ", timeout_ms: 100", "");
    let mut server = Server::start(&bench);
    let call = server.call_later("execute_process", touch());
    let (question, _) = bench.question();
    until("it is not recorded", || asked(&bench) == ["approver.asked unanswered"]);
    // Longer than its answer takes, and than the first retry would wait.
    std::thread::sleep(Duration::from_millis(2_000));
    assert_eq!(bench.approval_state(&question), "pending");
    assert_eq!(service.asked().len(), 1);
    let approve = bench.command().args(["approve", &question]).output().unwrap();
    assert!(approve.status.success());
    server.result(call).ok();
}

#[test]
fn what_an_approver_is_asked_with_stays_a_secret() {
    let service = Service::answering("200 OK", json!({"decision": "deny", "reason": "Bearer k3y-of-duty"}));
    let bench = asking(
        &service.address,
        ", headers: {Authorization_env: DUTY_AUTH, X-Team: core}",
        "",
    )
    .env("DUTY_AUTH", "Bearer k3y-of-duty");
    let mut server = Server::start(&bench);
    let outcome = server.call("execute_process", touch());
    outcome.refused("APPROVAL_DENIED");
    let headers = &service.asked()[0].headers;
    for (name, value) in [("authorization", "Bearer k3y-of-duty"), ("x-team", "core")] {
        assert!(
            headers.iter().any(|(known, said)| known == name && said == value),
            "{headers:?}"
        );
    }
    server.end();
    let shown = bench.command().args(["config", "show"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("DUTY_AUTH") && !shown.contains("core"), "{shown}");
    assert!(!server.stderr().contains("k3y-of-duty") && !outcome.text.contains("k3y-of-duty"));
    let told = "SELECT count(*) FROM flow_events WHERE payload LIKE '%k3y-of-duty%'";
    assert_eq!(bench.count(told), 0);
}

#[test]
fn a_secret_that_is_missing_stops_the_start() {
    let bench = asking("127.0.0.1:9", ", headers: {Authorization_env: NOWHERE}", "");
    let ran = bench.command().arg("stdio").output().unwrap();
    assert_eq!(ran.status.code(), Some(2));
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(
        said.contains("config.yaml: line ")
            && said.contains("approver `duty`: `headers.Authorization`: `NOWHERE`, which is to hold it, is not set"),
        "{said}"
    );
}

#[test]
fn one_approver_is_one_voice_of_a_quorum() {
    let service = Service::answering("200 OK", json!({"decision": "approve"}));
    let bench = asking(&service.address, "", "quorum: 2\n");
    let mut server = Server::start(&bench);
    let call = server.call_later("execute_process", touch());
    let (question, _) = bench.question();
    let voices = "SELECT count(*) FROM flow_events WHERE event_type = 'approval.approved'";
    until("it is not counted", || bench.count(voices) == 1);
    assert_eq!(bench.approval_state(&question), "pending");
    let approve = bench.command().args(["approve", &question]).output().unwrap();
    assert!(approve.status.success());
    server.result(call).ok();
    assert_eq!(bench.count(voices), 2);
}

#[test]
fn exec_is_answered_by_a_service_where_nobody_sits() {
    for (decision, code) in [("approve", 0), ("deny", 126)] {
        let service = Service::answering("200 OK", json!({"decision": decision, "reason": "r"}));
        let bench = asking(&service.address, "", "");
        let mut exec = bench.command();
        exec.args(["exec", "--", "touch", "made"])
            .stdin(std::process::Stdio::null());
        let ran = exec.output().unwrap();
        assert_eq!(ran.status.code(), Some(code), "{ran:?}");
        assert_eq!(made(&bench), code == 0);
    }
}

/// A bench whose approver answers later, to a server at a port of its own.
fn later(service: &Service) -> Bench {
    let more = format!(
        "listen: 127.0.0.1:{}\ncallbacks: {{token: callback-s3cret}}\n",
        free_port()
    );
    asking(&service.address, ", async: true", &more)
}

#[test]
fn a_question_of_a_stdio_process_is_answered_by_a_callback_to_the_server() {
    for (decision, ran) in [("approve", true), ("denied", false)] {
        let service = Service::answering("202 Accepted", Value::Null);
        let bench = later(&service);
        let serving = Serving::start(&bench);
        let mut server = Server::start(&bench);
        let call = server.call_later("execute_process", touch());
        let body = service.until_asked(1)[0].body.clone();
        let url = body["callback"]["url"].as_str().unwrap().to_owned();
        let path = url.strip_prefix(&format!("http://{}", serving.address)).expect(&url);
        // What an adapter sends that knows the correlation id only.
        let said = json!({"correlation_id": body["correlation_id"], "decision": decision, "reason": "so it is"});
        let (status, answer) = serving.post(path, TOKEN, &said);
        assert_eq!((status, &answer["id"]), (200, &body["approval_request_id"]), "{answer}");
        assert_eq!(answer["tool_name"], "execute_process");
        let outcome = server.result(call);
        assert_eq!((outcome.status() == "ok", made(&bench)), (ran, ran), "{}", outcome.text);
        assert!(ran || outcome.message().contains("so it is"));
        server.end();
        serving.stop();
        bench.prove();
    }
}

#[test]
fn what_is_open_when_a_server_starts_is_shown_again() {
    let service = Service::answering("202 Accepted", Value::Null);
    let bench = later(&service);
    let mut server = Server::start(&bench);
    server.call_later("execute_process", touch());
    let first = service.until_asked(1)[0].body.clone();
    server.kill();
    let serving = Serving::start(&bench);
    let again = service.until_asked(2)[1].body.clone();
    assert_eq!(again["approval_request_id"], first["approval_request_id"]);
    let said = json!({"approval_request_id": first["approval_request_id"], "decision": "approve"});
    let (status, answer) = serving.post("/api/v1/mcp/approver/callback", TOKEN, &said);
    assert_eq!((status, &answer["approval_state"]), (200, &json!("approved")));
    serving.stop();
    let mut server = Server::start(&bench);
    server.call("execute_process", touch()).ok();
    assert_eq!(
        service.asked().len(),
        2,
        "a server that only starts asks nothing that is settled"
    );
}

#[test]
fn a_secure_approver_must_prove_who_it_is() {
    // Anything that answers over TLS will do; the certificate is for `localhost`.
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/data");
    let files = Bench::new();
    for name in ["cert.pem", "key.pem"] {
        std::fs::copy(data.join(name), files.path(name)).unwrap();
    }
    let (cert, key) = (files.path("cert.pem"), files.path("key.pem"));
    let files = files.config(&format!(
        "listen: 127.0.0.1:0\ntls: {{cert: {}, key: {}}}\n",
        cert.display(),
        key.display()
    ));
    let service = Serving::start(&files);
    let (_, port) = service.address.rsplit_once(':').unwrap();
    let asking = || {
        let url = format!("https://localhost:{port}/ask");
        Bench::new().config(&format!("approvers: [{{name: duty, type: http, url: \"{url}\"}}]\n"))
    };
    let trusting = asking().env("SSL_CERT_FILE", &cert);
    let mut server = Server::start(&trusting);
    let outcome = server.call("execute_process", touch());
    assert!(
        outcome.refused("APPROVAL_DENIED").message().contains("HTTP 404"),
        "{}",
        outcome.text
    );
    // Nobody else trusts it, and then it is not asked.
    let bench = asking();
    let mut server = Server::start(&bench);
    server.call_later("execute_process", touch());
    let (question, _) = bench.question();
    until("it is not recorded", || {
        asked(&bench) == ["approver.unreachable retrying"]
    });
    let why = "SELECT count(*) FROM flow_events WHERE event_type = 'approver.unreachable'
        AND payload ->> '$.answer' LIKE '%certificate%'";
    assert_eq!(bench.count(why), 1);
    assert_eq!(bench.approval_state(&question), "pending");
}
