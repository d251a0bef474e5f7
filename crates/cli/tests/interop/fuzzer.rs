//! A fuzzer that speaks the protocol badly on purpose. What it makes of the answers is its opinion; what
//! counts is that the server lives, answers, says nothing of a panic and holds no more than before.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::foreign;
use crate::server::{Burden, Listening, bench, on_stdio};

const PATIENCE: Duration = Duration::from_secs(120);
/// What a tree may hold more after a run than after the one before it.
const GROWTH: Burden = Burden {
    processes: 2,
    descriptors: 24,
    resident_kib: 16 << 10,
};

/// How hard it tries, with the same seed each time.
const OPTIONS: &str = "--phase aggressive --protocol-phase aggressive --runs 8 --runs-per-type 5 --timeout 5 \
                       --seed 7 --no-corpus --no-network --allow-host 127.0.0.1";

/// What it can do over a transport.
#[derive(Clone, Copy)]
enum Reach {
    All,
    /// Its driver for HTTP+SSE cannot wait for answers: it sends messages, but finds no tools to call.
    Messages,
}

/// One run; nothing if the fuzzer is not installed.
fn fuzz(bench: &Bench, protocol: &str, endpoint: &str, reach: Reach) -> Option<()> {
    let mut command = foreign::python("python-fuzzer", "mcp-fuzzer", &bench.path("home"))?;
    let mode = match reach {
        Reach::All => "all",
        Reach::Messages => "protocol",
    };
    let found = bench.path("outside");
    command.args(OPTIONS.split_whitespace()).args(["--mode", mode]);
    command.args(["--protocol", protocol, "--endpoint", endpoint]);
    let said = foreign::run(command.arg("--output-dir").arg(&found), PATIENCE).ok();
    let summary = fs::read(found.join("run_summary.json")).unwrap_or_else(|error| panic!("{error}: {said}"));
    let summary: Value = serde_json::from_slice(&summary).unwrap();
    println!("{}", summary["findings"]);
    let runs = |kind: &str| summary[kind]["total_runs"].as_u64().unwrap_or(0);
    assert!(runs("protocols") >= 100, "messages were hardly tried: {said}");
    if let Reach::All = reach {
        assert_eq!(summary["status"], "completed", "{said}");
        assert!(runs("tools") >= 40, "tools were hardly tried: {said}");
        for (tool, seen) in summary["tools"]["by_name"].as_object().unwrap() {
            assert_eq!(seen["outcomes"]["crashed"], 0, "{tool}: {said}");
        }
    }
    Some(())
}

#[test]
fn a_fuzzer_leaves_no_trace_on_stdio() {
    let bench = bench();
    let server = on_stdio(&bench, "legacy");
    // The fuzzer passes on neither an environment nor standard error, so a script does.
    let words = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
    let mut script = "#!/bin/sh\nexec env -i".to_owned();
    for (name, value) in server["env"].as_object().unwrap() {
        script.push_str(&format!(" {}", words(&format!("{name}={}", value.as_str().unwrap()))));
    }
    let log = bench.path("outside/log");
    script.push_str(&format!(" {}", words(server["command"].as_str().unwrap())));
    script.push_str(&format!(" stdio 2>>{}\n", words(log.to_str().unwrap())));
    let path = bench.path("outside/server");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();

    if fuzz(&bench, "stdio", path.to_str().unwrap(), Reach::All).is_some() {
        let said = fs::read_to_string(log).unwrap();
        assert!(!said.contains("panicked"), "{said}");
        bench.until_tidy();
    }
}

#[test]
fn a_fuzzer_leaves_no_trace_over_streamable_http() {
    leaves_no_trace_over("streamablehttp", "/mcp", Reach::All);
}

#[test]
fn a_fuzzer_leaves_no_trace_over_sse() {
    leaves_no_trace_over("sse", "/sse", Reach::Messages);
}

fn leaves_no_trace_over(protocol: &str, path: &str, reach: Reach) {
    let bench = bench();
    let server = Listening::start(&bench, &[]);
    let url = server.url(path);
    // The first run fills pools and caches; the second may not add to them.
    if fuzz(&bench, protocol, &url, reach).is_none() {
        return;
    }
    answers(&server);
    let before = server.burden();
    fuzz(&bench, protocol, &url, reach);
    answers(&server);
    let deadline = Instant::now() + PATIENCE;
    while !is_near(before, server.burden()) {
        let now = server.burden();
        assert!(
            Instant::now() < deadline,
            "the server keeps more: {before:?}, then {now:?}"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    server.stop();
}

fn is_near(before: Burden, now: Burden) -> bool {
    now.processes <= before.processes + GROWTH.processes
        && now.descriptors <= before.descriptors + GROWTH.descriptors
        && now.resident_kib <= before.resident_kib + GROWTH.resident_kib
}

/// A request of our own is still answered.
#[track_caller]
fn answers(server: &Listening) {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}}).to_string();
    let address = server.address();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
         Mcp-Method: server/discover\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("supportedVersions"),
        "{answer}"
    );
}
