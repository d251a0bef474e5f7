//! `hook claude-code`: Claude Code asks here before it uses a tool, by its PreToolUse hook.
//!
//! The running server judges, or this process where there is none; the question, the answer and the record are
//! the same. It fails closed: Claude Code takes the exit code 2 as a no, and every other failure as if nobody
//! had been asked, so there is no other failure. For the same reason it answers before Claude Code gives up
//! waiting, takes a signal that would end it as a no, since the agent may send one, and never leaves the answer to
//! Claude Code's own dialog, whose yes would be on no record.

use std::io::Read as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use countersign_gateway::service::{Cancel, Origin, Service as _, ToolCall};
use countersign_gateway::session::{Caller, Transport};
use countersign_gateway::tools::prompt;
use countersign_integrations::http::{Dialer, Endpoint, Header};
use serde_json::{Map, Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::approvers::{self, Approvers};
use crate::cli::Hook;
use crate::config::Flags;
use crate::jobs;
use crate::start::{self, Started};
use crate::terminal::Page;
use crate::whereabouts;
use crate::wiring::Launchpad;

/// What Claude Code takes for a no, with standard error as the reason.
const BLOCKED: u8 = 2;
/// Bytes of an event that are read.
const EVENT_BYTES_MAX: u64 = 16 << 20;
/// What an answer may take besides waiting for a person.
const MARGIN: Duration = Duration::from_secs(10);
/// The revision of the protocol in which a call stands alone.
const REVISION: &str = "2026-07-28";

pub(crate) fn run(flags: &Flags, hook: &Hook) -> ExitCode {
    // A crash must not let the tool through either.
    std::panic::set_hook(Box::new(|_| std::process::exit(i32::from(BLOCKED))));
    match answer(flags, hook) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            start::say(&format!("countersign: the tool is not used: {error:#}"));
            ExitCode::from(BLOCKED)
        }
    }
}

fn answer(flags: &Flags, hook: &Hook) -> anyhow::Result<()> {
    let Hook::ClaudeCode { wait_seconds } = hook;
    let Some(wish) = Wish::read(std::io::stdin().lock(), Duration::from_secs(*wait_seconds))? else {
        return Ok(());
    };
    let said = judge(flags, &wish)?;
    let (decision, reason) = match said["behavior"].as_str() {
        Some("allow") => ("allow", "allowed by Countersign".to_owned()),
        Some("deny") => (
            "deny",
            said["message"].as_str().unwrap_or("it was not allowed").to_owned(),
        ),
        _ => bail!("the answer makes no sense: {said}"),
    };
    let mut page = Page::stdout();
    page.line(json!({"hookSpecificOutput": {
        "hookEventName": "PreToolUse", "permissionDecision": decision, "permissionDecisionReason": reason,
    }}))?;
    page.flush()
}

/// What Claude wants to do, as the tool that is asked takes it.
struct Wish {
    arguments: Map<String, Value>,
    wait: Duration,
}

impl Wish {
    /// None for an event that asks nothing.
    fn read(input: impl std::io::Read, wait: Duration) -> anyhow::Result<Option<Self>> {
        let mut text = String::new();
        input
            .take(EVENT_BYTES_MAX + 1)
            .read_to_string(&mut text)
            .context("cannot read the event on standard input")?;
        ensure!(
            text.len() as u64 <= EVENT_BYTES_MAX,
            "the event is longer than {EVENT_BYTES_MAX} bytes"
        );
        let event: Value = serde_json::from_str(&text).context("standard input holds no event of Claude Code")?;
        let kind = event["hook_event_name"]
            .as_str()
            .context("the event does not say what it is")?;
        if kind != "PreToolUse" {
            return Ok(None);
        }
        let tool = event["tool_name"].as_str().context("the event names no tool")?;
        let input = &event["tool_input"];
        ensure!(input.is_object(), "the event does not say what the tool is used with");
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let mut arguments = json!({"tool_name": tool, "input": input, "wait_ms": wait_ms});
        for name in ["tool_use_id", "cwd"] {
            if event[name].is_string() {
                arguments[name] = event[name].clone();
            }
        }
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        Ok(Some(Self { arguments, wait }))
    }
}

/// Asks the server that this agent was given, or that runs here; else this process judges.
fn judge(flags: &Flags, wish: &Wish) -> anyhow::Result<Value> {
    let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let token = given("COUNTERSIGN_TOKEN");
    if let Some(url) = given("COUNTERSIGN_MCP_URL") {
        return start::runtime()?.block_on(unless_stopped(by_server(&url, token.as_deref(), wish)));
    }
    let started = Started::load(flags)?;
    if let Some(address) = whereabouts::find(&started.settings.state_dir) {
        let url = format!("{address}/mcp");
        return start::runtime()?.block_on(unless_stopped(by_server(&url, token.as_deref(), wish)));
    }
    here(&started, wish)
}

/// Waits for an answer, or for a signal that would have ended this process without one.
async fn unless_stopped(judging: impl Future<Output = anyhow::Result<Value>>) -> anyhow::Result<Value> {
    let (tell, mut stopped) = mpsc::unbounded_channel();
    for kind in [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
        SignalKind::quit(),
        SignalKind::alarm(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
    ] {
        let mut signals = signal(kind).context("cannot listen for signals")?;
        let tell = tell.clone();
        tokio::spawn(async move {
            signals.recv().await;
            tell.send(())
        });
    }
    tokio::select! {
        said = judging => said,
        _ = stopped.recv() => bail!("it was told to stop before there was an answer"),
    }
}

async fn by_server(url: &str, token: Option<&str>, wish: &Wish) -> anyhow::Result<Value> {
    let endpoint = Endpoint::parse(url).map_err(|error| anyhow::anyhow!("`{url}` {error}"))?;
    let mut headers = vec![
        ("MCP-Protocol-Version", REVISION.to_owned()),
        ("Mcp-Method", "tools/call".to_owned()),
        ("Mcp-Name", prompt::NAME.to_owned()),
        ("Accept", "application/json, text/event-stream".to_owned()),
    ];
    if let Some(token) = token {
        ensure!(
            !endpoint.is_open_to_others(),
            "`{url}` is not encrypted, so the token is not sent there"
        );
        headers.push(("Authorization", format!("Bearer {token}")));
    }
    let headers: Result<Vec<Header>, _> = headers.iter().map(|(name, value)| Header::new(name, value)).collect();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "countersign-hook", "version": env!("CARGO_PKG_VERSION")},
    });
    let params = json!({"name": prompt::NAME, "arguments": wish.arguments, "_meta": meta});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let reply = Dialer::default()
        .post(&endpoint, &headers?, call.to_string().into_bytes(), wish.wait + MARGIN)
        .await
        .with_context(|| format!("the server at `{url}` does not answer"))?;
    let body = reply.body.context("the server's answer is too long")?;
    let answer = message(&body).with_context(|| format!("the server answered {} and nothing useful", reply.status))?;
    if let Some(error) = answer["error"]["message"].as_str() {
        bail!("the server refused: {error}");
    }
    said(answer["result"]["content"][0]["text"].as_str().unwrap_or_default())
}

/// What the tool said.
fn said(text: &str) -> anyhow::Result<Value> {
    serde_json::from_str(text).with_context(|| format!("the answer is not understood: {text}"))
}

/// The last message in a body, which is one message or a stream of events.
fn message(body: &[u8]) -> Option<Value> {
    if let Ok(message) = serde_json::from_slice(body) {
        return Some(message);
    }
    let text = std::str::from_utf8(body).ok()?;
    let mut data = text.lines().filter_map(|line| line.strip_prefix("data:"));
    serde_json::from_str(data.next_back()?.trim()).ok()
}

/// The same in this process. Who decides does so elsewhere: the terminal is Claude Code's.
fn here(started: &Started, wish: &Wish) -> anyhow::Result<Value> {
    let launchpad = Launchpad::prepare()?;
    start::runtime()?.block_on(unless_stopped(async {
        let approvers = Approvers {
            here: Vec::new(),
            outside: approvers::outside(&started.settings, &started.surroundings, None)?,
        };
        let joined = started.joined(launchpad, approvers, wish.wait).await?;
        joined.gateway.equip(vec![jobs::prompt(started)]);
        let call = ToolCall {
            tool: prompt::NAME.to_owned(),
            arguments: wish.arguments.clone(),
            progress: None,
            cancel: Cancel::never(),
            origin: Origin::default(),
            answer_within: None,
            user: None,
        };
        let answer = joined
            .gateway
            .call(Caller::anonymous_agent(Transport::Stdio), call)
            .await;
        joined.gateway.shutdown().await;
        match answer {
            Ok(answer) => said(&answer.text),
            Err(refusal) => bail!(refusal.message),
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> anyhow::Result<Option<Wish>> {
        Wish::read(text.as_bytes(), Duration::from_secs(1))
    }

    #[test]
    fn only_the_event_before_a_tool_asks_anything() {
        for other in ["PostToolUse", "SessionStart", "Stop"] {
            let event = json!({"hook_event_name": other}).to_string();
            assert!(read(&event).unwrap().is_none(), "{other}");
        }
        let event = json!({"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"},
            "tool_use_id": "t1", "cwd": "/work", "session_id": "s", "permission_mode": "default"});
        let wish = read(&event.to_string()).unwrap().unwrap();
        assert_eq!(
            Value::Object(wish.arguments),
            json!({"tool_name": "Bash", "input": {"command": "ls"}, "wait_ms": 1000, "tool_use_id": "t1", "cwd": "/work"})
        );
    }

    #[test]
    fn what_is_no_event_is_trouble() {
        for bad in [
            "",
            "[]",
            "{}",
            "nonsense",
            r#"{"hook_event_name": "PreToolUse"}"#,
            r#"{"hook_event_name": "PreToolUse", "tool_name": "Bash"}"#,
            r#"{"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": "ls"}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_answer_is_found_in_a_message_and_in_a_stream() {
        let found = json!({"id": 1});
        assert_eq!(message(br#"{"id": 1}"#), Some(found.clone()));
        let stream = b"event: message\ndata: {\"note\": 1}\n\nevent: message\ndata: {\"id\": 1}\n\n";
        assert_eq!(message(stream), Some(found));
        assert_eq!(message(b"<html>"), None);
    }
}
