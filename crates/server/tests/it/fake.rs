//! A gateway that answers as its tools' names say.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign_gateway::audit::Pending;
use countersign_gateway::catalog::definition::{Hints, ToolDefinition};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::{CredentialId, RequestId, SessionId};
use countersign_gateway::service::{Answer, Progress, RefusedEnvelope, Room, Service, ToolCall};
use countersign_gateway::session::credential::{Credential, Credentials};
use countersign_gateway::session::lifetime::{KeptSession, Session, SessionState, SessionStep, Sessions, Touched};
use countersign_gateway::session::{Caller, Role};
use serde_json::json;
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Fake {
    pub(crate) calls: AtomicUsize,
    pub(crate) cancelled: AtomicUsize,
    pub(crate) shutdowns: AtomicUsize,
    /// Messages that were refused before they became calls.
    pub(crate) refused: Mutex<Vec<RefusedEnvelope>>,
    /// The sessions a store would keep.
    pub(crate) sessions: Mutex<HashMap<SessionId, Session>>,
    /// Whether a tool is listed that wants an argument repeated in a header.
    pub(crate) lists_headed: AtomicBool,
    /// Tokens in force.
    pub(crate) tokens: Mutex<HashMap<String, Credential>>,
    /// How the commands of `long` stand.
    pub(crate) commands: Mutex<HashMap<String, &'static str>>,
    /// Lets calls of `wait` end, one for each permit.
    pub(crate) gate: Arc<Notify>,
    /// Told when the server shuts down.
    pub(crate) ending: Notify,
    /// The last call's reporter, for reports that come too late.
    pub(crate) reporter: Mutex<Option<Arc<dyn Progress>>>,
}

impl Fake {
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn cancelled(&self) -> usize {
        self.cancelled.load(Ordering::SeqCst)
    }
}

/// Gives a `Fake` to the server and keeps it for the test.
pub(crate) struct Shared(pub(crate) Arc<Fake>);

impl Service for Shared {
    fn tools(&self, _caller: &Caller) -> Arc<[ToolDefinition]> {
        let tool = |name: &'static str, input_schema| ToolDefinition {
            name: name.into(),
            title: "Echo".into(),
            description: "answers with its arguments".into(),
            input_schema,
            output_schema: json!({"type": "object", "properties": {"said": {}}}),
            version: "1.2.3".into(),
            hints: Hints {
                read_only: true,
                destructive: false,
                idempotent: true,
                open_world: false,
            },
        };
        let region = json!({"type": "string", "x-mcp-header": "Region"});
        let mut tools = vec![tool("echo", json!({"type": "object"}))];
        if self.0.lists_headed.load(Ordering::SeqCst) {
            tools.push(tool(
                "headed",
                json!({"type": "object", "properties": {"region": region}}),
            ));
        }
        tools.into()
    }

    fn policy(&self, caller: &Caller) -> serde_json::Value {
        json!({"of": caller.role.as_str()})
    }

    fn call(&self, _caller: Caller, mut call: ToolCall) -> Pending<Result<Answer, Refusal>> {
        let fake = Arc::clone(&self.0);
        let number = fake.calls.fetch_add(1, Ordering::SeqCst) + 1;
        *fake.reporter.lock().unwrap() = call.progress.clone();
        Box::pin(async move {
            match call.tool.as_str() {
                "echo" | "headed" => Ok(said(json!({"said": call.arguments, "call": number}))),
                "wait" => {
                    tokio::select! {
                        () = fake.gate.notified() => Ok(said(json!({"waited": call.arguments, "call": number}))),
                        () = call.cancel.cancelled() => {
                            fake.cancelled.fetch_add(1, Ordering::SeqCst);
                            Ok(Answer { is_error: true, ..said(json!({"error_code": "CANCELLED"})) })
                        }
                    }
                }
                "fail" => Ok(Answer {
                    is_error: true,
                    ..said(json!({"error_code": "COMMAND_EXIT_NON_ZERO"}))
                }),
                "big" => {
                    let size = call.arguments["bytes"].as_u64().unwrap() as usize;
                    Ok(said(json!({"big": "x".repeat(size)})))
                }
                "report" => {
                    for message in ["one", "two", "three"] {
                        if let Some(progress) = &call.progress {
                            progress.report(message);
                        }
                        tokio::task::yield_now().await;
                    }
                    Ok(said(json!({})))
                }
                "flood" => {
                    let progress = call.progress.expect("a token");
                    for _ in 0..5_000 {
                        progress.report(&"y".repeat(1 << 10));
                    }
                    Ok(said(json!({})))
                }
                "until_shutdown" => {
                    fake.ending.notified().await;
                    Ok(said(json!({})))
                }
                "forbidden" => Err(Refusal::new(ErrorCode::Forbidden, "not with this token")),
                // A command that goes on until it is cancelled, for callers that will not wait.
                "long" => {
                    let status = if call.answer_within.is_some() { "running" } else { "ok" };
                    let id = RequestId::trusted(format!("command-{number}"));
                    fake.commands.lock().unwrap().insert(id.to_string(), status);
                    Ok(Answer {
                        command: Some(id.clone()),
                        is_repeat: false,
                        ..command(&id.to_string(), status)
                    })
                }
                "command_cancel" => {
                    let id = call.arguments["request_id"].as_str().unwrap();
                    let mut commands = fake.commands.lock().unwrap();
                    if let Some(status) = commands.get_mut(id) {
                        if *status == "running" {
                            *status = "failed";
                        }
                        return Ok(command(id, status));
                    }
                    Ok(Answer {
                        is_error: true,
                        ..said(json!({"status": "rejected", "error_code": "NOT_FOUND"}))
                    })
                }
                "panic" => panic!("a tool that breaks"),
                unknown => {
                    let message = format!("there is no tool `{unknown}`");
                    Err(Refusal::new(ErrorCode::UnknownTool, message).with("tool", unknown))
                }
            }
        })
    }

    fn recall(
        &self,
        _caller: Caller,
        command: RequestId,
        _tool: Option<String>,
        _patience: Duration,
    ) -> Pending<Result<Answer, Refusal>> {
        let status = self.0.commands.lock().unwrap().get(command.as_str()).copied();
        let unknown = || match command.as_str().starts_with("never") {
            true => json!({"status": "rejected", "error_code": "NOT_FOUND"}),
            false => json!({"recalled": command.as_str()}),
        };
        let answer = status.map_or_else(|| said(unknown()), |status| self::command(command.as_str(), status));
        Box::pin(std::future::ready(Ok(answer)))
    }

    fn refused(&self, envelope: RefusedEnvelope) -> Pending<()> {
        self.0.refused.lock().unwrap().push(envelope);
        Box::pin(std::future::ready(()))
    }

    fn shutdown(&self) -> Pending<()> {
        self.0.shutdowns.fetch_add(1, Ordering::SeqCst);
        self.0.ending.notify_waiters();
        Box::pin(async {})
    }
}

/// A command's result, as far as tasks look at it. What failed here was cancelled.
fn command(id: &str, status: &str) -> Answer {
    let mut structured = json!({
        "request_id": id,
        "status": status,
        "started_at": "2026-11-15T10:00:00.000Z",
        "finished_at": (status != "running").then_some("2026-11-15T10:00:05.000Z"),
    });
    match status {
        "failed" => structured["error_code"] = "CANCELLED".into(),
        "timeout" => structured["error_code"] = "COMMAND_TIMEOUT".into(),
        _ => {}
    }
    Answer {
        is_error: !matches!(status, "ok" | "running"),
        ..said(structured)
    }
}

fn said(structured: serde_json::Value) -> Answer {
    Answer {
        text: structured.to_string(),
        structured,
        is_error: false,
        command: None,
        is_repeat: false,
        room: Room::default(),
    }
}

impl Sessions for Shared {
    fn open(&self, session: Session) -> Pending<Result<(), Refusal>> {
        self.0.sessions.lock().unwrap().insert(session.id.clone(), session);
        Box::pin(std::future::ready(Ok(())))
    }

    fn advance(&self, session: Session, from: SessionState) -> Pending<Result<(), Refusal>> {
        let mut sessions = self.0.sessions.lock().unwrap();
        let stands = sessions.get(&session.id).map(Session::state);
        assert_eq!(stands, Some(from));
        sessions.insert(session.id.clone(), session);
        Box::pin(std::future::ready(Ok(())))
    }

    fn find(&self, id: &SessionId) -> Pending<Result<Option<KeptSession>, Refusal>> {
        let session = self.0.sessions.lock().unwrap().get(id).cloned();
        let kept = session.map(|session| KeptSession {
            session,
            requests: Vec::new(),
        });
        Box::pin(std::future::ready(Ok(kept)))
    }

    fn touch(&self, touched: Vec<Touched>) -> Pending<Result<(), Refusal>> {
        let mut sessions = self.0.sessions.lock().unwrap();
        for Touched { id, at, reuses_ids } in touched {
            if let Some(session) = sessions.get_mut(&id) {
                session.last_activity_at = session.last_activity_at.max(at);
                session.reuses_ids |= reuses_ids;
            }
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn ended(&self, among: Vec<SessionId>) -> Pending<Result<Vec<SessionId>, Refusal>> {
        let sessions = self.0.sessions.lock().unwrap();
        let has_ended = |id: &SessionId| sessions.get(id).is_none_or(|session| !session.state().is_open());
        let ended = among.into_iter().filter(has_ended).collect();
        Box::pin(std::future::ready(Ok(ended)))
    }

    fn count(&self) -> Pending<Result<Vec<(SessionState, usize)>, Refusal>> {
        let sessions = self.0.sessions.lock().unwrap();
        let at = |state| sessions.values().filter(|session| session.state() == state).count();
        let counts = SessionState::ALL.map(|state| (state, at(state))).to_vec();
        Box::pin(std::future::ready(Ok(counts)))
    }

    fn expire(&self, idle_since: Timestamp, busy: Vec<SessionId>) -> Pending<Result<Vec<SessionId>, Refusal>> {
        let mut sessions = self.0.sessions.lock().unwrap();
        let mut ended = Vec::new();
        for (id, session) in sessions.iter_mut() {
            let idle = session.state().is_open() && session.last_activity_at <= idle_since;
            if idle && !busy.contains(id) {
                let now = session.last_activity_at;
                *session = session.clone().step(SessionStep::Expire, now).unwrap();
                ended.push(id.clone());
            }
        }
        Box::pin(std::future::ready(Ok(ended)))
    }
}

impl Fake {
    /// Puts a token into force.
    pub(crate) fn allow(&self, token: &str, role: Role) {
        let credential = Credential {
            id: CredentialId::trusted(format!("credential of {token}")),
            role,
            name: token.to_owned(),
            created_at: Timestamp::from_millis(0),
            revoked_at: None,
            expires_at: None,
            run: None,
            run_context: None,
            job: None,
        };
        self.tokens.lock().unwrap().insert(token.to_owned(), credential);
    }

    /// Where each session stands.
    pub(crate) fn states(&self) -> Vec<SessionState> {
        self.sessions.lock().unwrap().values().map(Session::state).collect()
    }
}

impl Credentials for Shared {
    fn authenticate(&self, token: &str) -> Option<Credential> {
        self.0.tokens.lock().unwrap().get(token).cloned()
    }

    fn is_in_force(&self, id: &CredentialId) -> bool {
        self.0.tokens.lock().unwrap().values().any(|token| token.id == *id)
    }

    fn any_of_job(&self) -> bool {
        self.0.tokens.lock().unwrap().values().any(|token| token.job.is_some())
    }
}
