//! What comes in by HTTP to the real server, from people who mean it ill: nobody is waited for for ever, and what
//! can be read in two ways is not read at all.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use countersign_doubles::github::{GitHub, TOKEN};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::{PATIENCE, eventually};
use crate::outside::{Serving, send};
use crate::web::{Web, legacy};

const WEBHOOKS: &str = "/api/v1/webhooks/github";
const CALLBACK: &str = "/api/v1/mcp/approver/callback";

/// A bench with every door open.
fn bench(github: &GitHub) -> Bench {
    Bench::new().config(&format!(
        "listen: 127.0.0.1:0\ncallbacks: {{token: callback-s3cret}}\n\
         github: {{api_url: '{}', token: {TOKEN}, webhook_secret: webhook-s3cret}}\n",
        github.url()
    ))
}

/// What is answered to these very bytes.
fn raw(address: &str, bytes: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    connection.write_all(bytes.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

/// Sends this much and no more; what is answered until the server hangs up.
fn half(address: &str, path: &str, headers: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\n{headers}Content-Length: 100\r\n\r\n{{\"");
    connection.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    connection
        .read_to_string(&mut answer)
        .unwrap_or_else(|error| panic!("{path} waits for ever: {error}"));
    answer
}

#[test]
fn nobody_who_sends_half_a_body_is_waited_for_for_ever_at_any_door() {
    let github = GitHub::start();
    let bench = bench(&github);
    let serving = Serving::start(&bench);
    let address = serving.address.as_str();
    let form = format!("Origin: http://{address}\r\nContent-Type: application/x-www-form-urlencoded\r\n");
    let token = "X-Codex-MCP-Token: callback-s3cret\r\n".to_owned();
    let json = "Content-Type: application/json\r\n".to_owned();
    std::thread::scope(|scope| {
        for (path, headers) in [
            ("/login", &form),
            (WEBHOOKS, &json),
            (CALLBACK, &token),
            ("/api/v1/commands", &json),
            ("/mcp", &json),
        ] {
            scope.spawn(move || {
                let answer = half(address, path, headers);
                assert!(answer.starts_with("HTTP/1.1 408 "), "{path}: {answer}");
            });
        }
    });
    let told = |kind: &str| bench.count(&format!("SELECT count(*) FROM flow_events WHERE event_type = '{kind}'"));
    assert_eq!((told("webhook.refused"), told("callback.received")), (1, 1));
}

/// A server that may have so many files open and no more.
fn with_files(bench: &Bench, most: usize) -> Web {
    let bare = bench.command();
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={most}:{most}")).arg("--");
    command.arg(bare.get_program()).args(bare.get_args());
    command.env_clear().current_dir(bench.work());
    command.envs(bare.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Web::of(command.args(["serve", "--listen", "127.0.0.1:0"]))
}

#[test]
fn an_agent_that_opens_every_stream_takes_neither_the_record_nor_commands_nor_the_console_away() {
    let bench = Bench::configured("ls", "");
    let web = with_files(&bench, 256);
    let mut streams = Vec::new();
    for _ in 0..120 {
        let mut stream = TcpStream::connect(&web.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let ask = format!(
            "GET /sse HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            web.address
        );
        stream.write_all(ask.as_bytes()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        match &status {
            b"HTTP/1.1 200" => streams.push(stream),
            b"HTTP/1.1 503" => {}
            other => panic!("{}", String::from_utf8_lossy(other)),
        }
    }
    assert_eq!(streams.len(), 96, "three quarters of half of what may be open");
    let (status, ran) = web.rest("/api/v1/commands", "", &json!({"command": "ls"}));
    assert_eq!((status, &ran["status"]), (200, &json!("ok")), "{ran}");
    let (status, page) = send(&web.address, "GET", "/login", "", "");
    assert_eq!(status, 200, "{page}");
    drop(streams);
    web.stop();
}

#[test]
fn a_body_that_can_be_read_in_two_ways_is_not_read() {
    let bench = Bench::configured("ls, pwd", "");
    let web = Web::serve(&bench);
    for twice in [
        r#"{"command": "ls", "command": "pwd"}"#,
        r#"{"command": "ls", "env": {"A": "1", "A": "2"}}"#,
        r#"{"tool": "execute_command", "command": "ls", "tool": "execute_process"}"#,
    ] {
        let (status, answer) = send(&web.address, "POST", "/api/v1/commands", "", twice);
        assert_eq!(status, 400, "{twice}: {answer}");
        assert!(answer.contains("the same name twice"), "{twice}: {answer}");
    }
    assert_eq!(
        bench.count("SELECT count(*) FROM flow_events WHERE event_type LIKE 'command.%'"),
        0
    );
}

#[test]
fn a_page_of_another_port_runs_nothing_in_an_agents_name() {
    let bench = Bench::configured("ls", "");
    let web = Web::serve(&bench);
    let bytes = |origin: &str| {
        // As browsers send bytes of no kind, without asking whether they may.
        let (host, body) = (&web.address, r#"{"command": "ls"}"#);
        let head = format!("POST /api/v1/commands HTTP/1.1\r\nHost: {host}\r\n{origin}Connection: close\r\n");
        raw(
            &web.address,
            &format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()),
        )
    };
    for origin in ["Origin: http://127.0.0.1:3000\r\n", "Origin: http://localhost\r\n"] {
        let answer = bytes(origin);
        assert!(answer.starts_with("HTTP/1.1 403 "), "{origin}: {answer}");
        let (status, _) = send(&web.address, "POST", "/api/v1/commands/r-1/cancel", origin, "");
        assert_eq!(status, 403, "{origin}");
    }
    assert_eq!(
        bench.count("SELECT count(*) FROM flow_events WHERE event_type LIKE 'command.%'"),
        0
    );
    // A program has no origin.
    assert!(bytes("").starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_cookie_that_another_page_put_beside_the_login_keeps_nobody_out() {
    let bench = Bench::new();
    let web = Web::serve(&bench);
    let made = bench
        .command()
        .args(["tokens", "create", "--role", "operator", "--name", "ana", "--json"])
        .output()
        .unwrap();
    let token: Value = serde_json::from_slice(&made.stdout).unwrap();
    let host = &web.address;
    let form = format!("token={}", token["token"].as_str().unwrap());
    let entered = raw(
        host,
        &format!(
            "POST /login HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nConnection: close\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            form.len()
        ),
    );
    let cookie = entered.lines().find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = cookie.and_then(|cookie| cookie.split(';').next()).unwrap();
    let page = |cookies: &str| {
        let answer = raw(
            host,
            &format!("GET /sessions HTTP/1.1\r\nHost: {host}\r\nCookie: {cookies}\r\nConnection: close\r\n\r\n"),
        );
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(page(cookie), "200");
    assert_eq!(page(&format!("countersign_login=planted; {cookie}")), "200");
    assert_eq!(page("countersign_login=planted"), "303");
}

/// The process that makes the sandboxes of a server; any of its threads may have started it.
fn zygote_of(web: &Web) -> Option<String> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", web.pid()))
        .unwrap()
        .flatten();
    let children = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let children: String = children.collect();
    let is_zygote =
        |pid: &&str| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it == "cs-zygote\n");
    children.split_whitespace().find(is_zygote).map(str::to_owned)
}

fn kill(signal: &str, pid: &str) {
    assert!(Command::new("kill").args([signal, pid]).status().unwrap().success());
}

#[test]
fn a_killed_maker_of_sandboxes_is_replaced_and_commands_are_confined_as_before() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "true");
        let web = Web::serve(&bench);
        let session = web.session(json!({}));
        // A directory that no sandbox was made for yet, each time.
        let layers = |name: &str| {
            let arguments = json!({"file": "true", "args": [], "cwd": bench.dir(name)});
            let call = json!({"name": "execute_process", "arguments": arguments});
            let (_, answer) = web.post("/mcp", &session, &legacy(1, "tools/call", call));
            let result = &answer["result"]["structuredContent"];
            assert_eq!(result["status"], "ok", "{answer}");
            result["sandbox"].clone()
        };
        let before = layers("before");
        let killed = zygote_of(&web).unwrap();
        kill("-9", &killed);
        assert_eq!(layers("behind"), before);
        let next = zygote_of(&web).unwrap();
        assert_ne!(next, killed);
        let is_there = std::path::Path::new("/proc").join(&killed).exists();
        assert!(!is_there, "the one that was killed was not waited for");
        let (_, page) = send(&web.address, "GET", "/metrics", "", "");
        assert!(page.contains("countersign_sandbox_restarts_total 1\n"), "{page}");
        // Nobody but root may look.
        let environment = std::fs::read(format!("/proc/{next}/environ")).unwrap_or_default();
        assert_eq!(environment, b"", "it knows nothing of the server's environment");
        assert_eq!(send(&web.address, "GET", "/readyz", "", "").0, 200);
    });
}

#[test]
fn a_maker_of_sandboxes_that_is_killed_over_and_over_is_waited_with() {
    let bench = Bench::allowing("true");
    let web = Web::serve(&bench);
    let ready = || send(&web.address, "GET", "/readyz", "", "");
    eventually("it gives up for a while", || {
        zygote_of(&web).iter().for_each(|zygote| kill("-9", zygote));
        ready().0 == 503
    });
    let (_, said) = ready();
    assert!(said.contains("start the server anew"), "{said}");
    assert_eq!(send(&web.address, "GET", "/healthz", "", "").0, 200);
    eventually("it tries again", || ready().0 == 200);
}
