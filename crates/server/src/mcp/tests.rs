//! What several connections of one server mean to one another, and what is left when they end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign_gateway::audit::Pending;
use countersign_gateway::catalog::definition::ToolDefinition;
use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::{CredentialId, IdSource, RequestId, SessionId};
use countersign_gateway::service::{Answer, RefusedEnvelope, Service, ToolCall};
use countersign_gateway::session::lifetime::{
    ClientInfo, KeptRequest, KeptSession, Session, SessionState, SessionStep, Sessions, Touched, Unkept,
};
use countersign_gateway::session::{Caller, Transport};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::changes::Change;
use super::connection::Connection;
use super::host::{ConformanceFixtures, Features, Host, Link};
use super::memory;
use super::outlet::{Outgoing, Outlet};
use super::seal::SealKey;
use crate::limits::{ANSWERS_AWAITED_MAX, IDS_REMEMBERED, REFUSALS_AWAITED_MAX, REQUEST_STATE_TTL};

/// A command that does not end.
const ENDLESS: &str = "endless";

/// A gateway whose only tool waits until it is cancelled, and which remembers what was refused.
#[derive(Default)]
struct Waits {
    refused: Mutex<Vec<RefusedEnvelope>>,
}

impl Service for Waits {
    fn tools(&self, _caller: &Caller) -> Arc<[ToolDefinition]> {
        Arc::default()
    }

    fn policy(&self, _caller: &Caller) -> Value {
        Value::Null
    }

    fn call(&self, _caller: Caller, mut call: ToolCall) -> Pending<Result<Answer, Refusal>> {
        Box::pin(async move {
            if call.tool != "wait" {
                return Err(Refusal::new(ErrorCode::UnknownTool, "there is only `wait`"));
            }
            call.cancel.cancelled().await;
            Err(Refusal::new(ErrorCode::Cancelled, "cancelled"))
        })
    }

    fn recall(
        &self,
        _caller: Caller,
        command: RequestId,
        _tool: Option<String>,
        _patience: Duration,
    ) -> Pending<Result<Answer, Refusal>> {
        if command.as_str() == ENDLESS {
            return Box::pin(std::future::pending());
        }
        Box::pin(std::future::ready(Err(Refusal::new(ErrorCode::NotFound, "nothing"))))
    }

    fn refused(&self, envelope: RefusedEnvelope) -> Pending<()> {
        self.refused.lock().unwrap().push(envelope);
        Box::pin(std::future::ready(()))
    }

    fn shutdown(&self) -> Pending<()> {
        Box::pin(std::future::ready(()))
    }
}

/// A store that never answers, and counts what it is asked.
#[derive(Default)]
struct Stuck(AtomicUsize);

impl Sessions for Stuck {
    fn open(&self, session: Session) -> Pending<Result<(), Refusal>> {
        Unkept.open(session)
    }

    fn advance(&self, session: Session, from: SessionState) -> Pending<Result<(), Refusal>> {
        Unkept.advance(session, from)
    }

    fn find(&self, _id: &SessionId) -> Pending<Result<Option<KeptSession>, Refusal>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::pending())
    }

    fn touch(&self, touched: Vec<Touched>) -> Pending<Result<(), Refusal>> {
        Unkept.touch(touched)
    }

    fn ended(&self, among: Vec<SessionId>) -> Pending<Result<Vec<SessionId>, Refusal>> {
        Unkept.ended(among)
    }

    fn count(&self) -> Pending<Result<Vec<(SessionState, usize)>, Refusal>> {
        Unkept.count()
    }

    fn expire(&self, idle_since: Timestamp, busy: Vec<SessionId>) -> Pending<Result<Vec<SessionId>, Refusal>> {
        Unkept.expire(idle_since, busy)
    }
}

fn host(clock: &Clock) -> Arc<Host> {
    host_of(clock, Arc::new(Unkept))
}

fn host_of(clock: &Clock, sessions: Arc<dyn Sessions>) -> Arc<Host> {
    host_before(clock, sessions, Arc::new(Waits::default()))
}

fn host_before(clock: &Clock, sessions: Arc<dyn Sessions>, service: Arc<Waits>) -> Arc<Host> {
    Arc::new(Host {
        service,
        sessions,
        clock: clock.clone(),
        ids: IdSource::counting(),
        depth_max: 128,
        features: Features::new(clock, ConformanceFixtures::Served, SealKey::new([7; 32])),
        metrics: Arc::default(),
    })
}

fn clock() -> Clock {
    Clock::fixed(Timestamp::from_millis(1_000))
}

/// A client, and all it heard.
struct Peer {
    connection: Connection,
    heard: Arc<Heard>,
    outlet: Arc<dyn Outlet>,
}

#[derive(Default)]
struct Heard(Mutex<Vec<Value>>);

impl Outlet for Heard {
    fn send(&self, message: Outgoing) {
        let message = serde_json::from_slice(&message.bytes).unwrap();
        self.0.lock().unwrap().push(message);
    }

    fn offer(&self, message: Outgoing) -> bool {
        self.send(message);
        true
    }
}

impl Peer {
    fn new(host: &Arc<Host>, credential: &str) -> Self {
        Self::on(host, credential, Link::Stdio(host.ids.session()))
    }

    fn on(host: &Arc<Host>, credential: &str, link: Link) -> Self {
        let caller = Caller {
            credential: CredentialId::trusted(credential),
            ..Caller::anonymous_agent(Transport::Stdio)
        };
        let connection = Connection::new(host, caller, link);
        let heard = Arc::new(Heard::default());
        let outlet = Arc::clone(&heard) as Arc<dyn Outlet>;
        connection.stand_on(&outlet);
        Self {
            connection,
            heard,
            outlet,
        }
    }

    fn say(&self, message: &Value) {
        self.connection.receive(message.to_string().as_bytes(), &self.outlet);
    }

    fn request(&self, id: impl Into<Value>, method: &str, params: Value) {
        let id = id.into();
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    fn initialize(&self) {
        let capabilities = json!({"elicitation": {}, "sampling": {}, "roots": {}});
        self.request(
            "hello",
            "initialize",
            json!({"protocolVersion": "2025-11-25", "capabilities": capabilities}),
        );
    }

    fn heard(&self) -> Vec<Value> {
        self.heard.0.lock().unwrap().clone()
    }

    /// The first message that fits, in some turns of the runtime.
    async fn hears(&self, fits: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..1_000 {
            if let Some(message) = self.heard().into_iter().find(&fits) {
                return message;
            }
            tokio::task::yield_now().await;
        }
        panic!("not heard among {:?}", self.heard());
    }

    async fn ask(&self, id: &str, method: &str, params: Value) -> Value {
        self.request(id, method, params);
        self.hears(|message| message["id"] == id).await
    }
}

fn modern(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    });
    params
}

#[tokio::test]
async fn only_so_many_wait_for_the_end_of_a_command_that_was_answered() {
    let host = host(&clock());
    let caller = Caller::anonymous_agent(Transport::StreamableHttp);
    let id = host.ids.session();
    let client = ClientInfo {
        protocol_version: Some("2025-11-25".to_owned()),
        ..ClientInfo::default()
    };
    let session = Session::new(id.clone(), &caller, clock().now()).of(client);
    let params = json!({"name": "wait", "arguments": {}});
    let kept = KeptSession {
        session: session.step(SessionStep::Initialize, clock().now()).unwrap(),
        requests: vec![KeptRequest {
            rpc_id: "1".to_owned(),
            digest: memory::digest("tools/call", params.as_object().unwrap()),
            command: Some(RequestId::trusted(ENDLESS)),
            waits: false,
        }],
    };
    let connection = Connection::restored(&host, caller, Link::Streamable(id), kept);
    let heard = Arc::new(Heard::default());
    let outlet = Arc::clone(&heard) as Arc<dyn Outlet>;
    let again = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    for _ in 0..=ANSWERS_AWAITED_MAX {
        connection.receive(again.as_bytes(), &outlet);
    }
    // What is refused is answered once it is in the record.
    for _ in 0..ANSWERS_AWAITED_MAX {
        tokio::task::yield_now().await;
    }
    let (_, open, _) = connection.left();
    assert_eq!(open, ANSWERS_AWAITED_MAX);
    let heard = heard.0.lock().unwrap().clone();
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert_eq!(heard[0]["error"]["data"]["errorCode"], "RATE_LIMITED");
}

#[tokio::test]
async fn cancels_of_what_runs_elsewhere_are_looked_up_together_and_bounded() {
    let sessions = Arc::new(Stuck::default());
    let host = host_of(&clock(), sessions.clone());
    let peer = Peer::on(&host, "ana", Link::Streamable(host.ids.session()));
    for id in 0..2 * IDS_REMEMBERED {
        peer.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    }
    assert_eq!(peer.connection.cancels_waiting(), IDS_REMEMBERED);
    tokio::task::yield_now().await;
    assert_eq!(sessions.0.load(Ordering::Relaxed), 1, "one look for all that wait");
    peer.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "late"}}));
    tokio::task::yield_now().await;
    assert_eq!(
        (peer.connection.cancels_waiting(), sessions.0.load(Ordering::Relaxed)),
        (1, 1)
    );
}

#[tokio::test]
async fn refusals_that_come_too_fast_to_be_written_one_by_one_are_counted() {
    const MORE: usize = 700;
    let service = Arc::new(Waits::default());
    let peer = Peer::new(&host_before(&clock(), Arc::new(Unkept), Arc::clone(&service)), "a");
    peer.initialize();
    for id in 0..REFUSALS_AWAITED_MAX {
        peer.request(id, "no/such/method", json!({}));
    }
    for id in 0..MORE {
        peer.request(format!("call {id}"), "tools/call", json!({"name": 5}));
        peer.connection.receive(b"{", &peer.outlet);
    }
    peer.connection.settled().await;
    let answers = peer
        .heard()
        .iter()
        .filter(|message| message["error"].is_object())
        .count();
    assert_eq!(answers, REFUSALS_AWAITED_MAX + 2 * MORE);
    let refused = service.refused.lock().unwrap();
    let mut written = HashMap::<_, u64>::new();
    for envelope in &*refused {
        let count = envelope.params.as_ref().and_then(|params| params.get("count"));
        let of = if envelope.method == "tools/call" {
            "a call"
        } else {
            "no call"
        };
        *written.entry((envelope.code, of)).or_default() += count.map_or(1, |count| count.as_u64().unwrap());
    }
    let expected = [
        ((ErrorCode::MethodNotFound, "no call"), REFUSALS_AWAITED_MAX as u64),
        ((ErrorCode::InvalidParams, "a call"), MORE as u64),
        ((ErrorCode::ParseError, "no call"), MORE as u64),
    ];
    assert_eq!(written, HashMap::from(expected));
    assert!(refused.len() < REFUSALS_AWAITED_MAX + MORE, "nothing was counted");
}

#[tokio::test]
async fn a_state_is_of_no_use_to_another_caller_nor_too_late() {
    let clock = clock();
    let host = host(&clock);
    let (ana, ben) = (Peer::new(&host, "ana"), Peer::new(&host, "ben"));
    let tool = "test_input_required_result_request_state";
    let state = async |id: &str| {
        let asked = ana.ask(id, "tools/call", modern(json!({"name": tool}))).await;
        asked["result"]["requestState"].as_str().unwrap().to_owned()
    };
    let retry = |state: &str| {
        let answers = json!({"confirm": {"action": "accept", "content": {"ok": true}}});
        modern(json!({"name": tool, "inputResponses": answers, "requestState": state}))
    };
    let given = state("1").await;
    let stolen = ben.ask("2", "tools/call", retry(&given)).await;
    assert_eq!(stolen["error"]["code"], -32602);
    let kept = ana.ask("3", "tools/call", retry(&given)).await;
    assert_eq!(kept["result"]["resultType"], "complete", "the theft did not use it up");

    let given = state("4").await;
    clock.advance(REQUEST_STATE_TTL);
    let late = ana.ask("5", "tools/call", retry(&given)).await;
    assert_eq!(late["error"]["code"], -32602);
}

#[tokio::test]
async fn an_answer_on_another_connection_is_nobodys() {
    let host = host(&clock());
    let (ana, ben) = (Peer::new(&host, "ana"), Peer::new(&host, "ana"));
    for peer in [&ana, &ben] {
        peer.initialize();
        peer.request(
            1,
            "tools/call",
            json!({"name": "test_elicitation", "arguments": {"message": "?"}}),
        );
    }
    let question = |message: &Value| message["method"] == "elicitation/create";
    let asked = ana.hears(question).await["id"].clone();
    assert_ne!(asked, ben.hears(question).await["id"]);
    let declined = json!({"jsonrpc": "2.0", "id": asked, "result": {"action": "decline"}});
    ben.say(&declined);
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    let is_answer = |message: &Value| message["id"] == 1;
    assert!(!ben.heard().iter().any(is_answer) && !ana.heard().iter().any(is_answer));
    ana.say(&declined);
    assert!(ana.hears(is_answer).await["result"].is_object());
}

#[tokio::test]
async fn who_subscribed_hears_of_a_resource_until_it_unsubscribes() {
    let host = host(&clock());
    let ana = Peer::new(&host, "ana");
    ana.initialize();
    let uri = "test://watched-resource";
    let updated = || host.features.changes.announce(Change::Resource(uri.to_owned()));
    let count = || {
        let heard = ana.heard();
        let updates = heard
            .iter()
            .filter(|message| message["method"] == "notifications/resources/updated");
        updates
            .inspect(|update| assert_eq!(update["params"], json!({"uri": uri})))
            .count()
    };
    ana.ask("1", "resources/subscribe", json!({"uri": uri})).await;
    host.features
        .changes
        .announce(Change::Resource("test://static-text".to_owned()));
    updated();
    ana.hears(|message| message["params"]["uri"] == uri).await;
    assert_eq!(count(), 1);
    ana.ask("2", "resources/unsubscribe", json!({"uri": uri})).await;
    updated();
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert_eq!(count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_question_is_not_waited_for_for_ever() {
    let host = host(&clock());
    let ana = Peer::new(&host, "ana");
    ana.initialize();
    ana.request(
        1,
        "tools/call",
        json!({"name": "test_elicitation", "arguments": {"message": "?"}}),
    );
    let asked = ana.hears(|message| message["method"] == "elicitation/create").await;
    tokio::time::sleep(crate::limits::QUESTION_PATIENCE + Duration::from_secs(1)).await;
    let answer = ana.hears(|message| message["id"] == 1).await;
    assert_eq!(answer["error"]["data"]["errorCode"], "CANCELLED");
    let withdrawn = ana
        .hears(|message| message["method"] == "notifications/cancelled")
        .await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
}

#[derive(Clone, Debug)]
enum Act {
    Call(&'static str, u8),
    Modern(&'static str, u8),
    Listen(u8),
    Cancel(u8),
    /// Answers the question that was asked so many questions ago, or one that was not.
    Answer(usize, bool),
    Turn,
}

fn act() -> impl Strategy<Value = Act> {
    let tool = prop_oneof![
        Just("wait"),
        Just("test_elicitation"),
        Just("test_sampling"),
        Just("test_elicitation_sep1330_enums"),
        Just("test_input_required_result_list_roots"),
        Just("test_simple_text"),
        Just("unheard_of"),
    ];
    prop_oneof![
        4 => (tool.clone(), any::<u8>()).prop_map(|(tool, id)| Act::Call(tool, id)),
        1 => (tool, any::<u8>()).prop_map(|(tool, id)| Act::Modern(tool, id)),
        1 => any::<u8>().prop_map(Act::Listen),
        1 => any::<u8>().prop_map(Act::Cancel),
        3 => (0..4_usize, any::<bool>()).prop_map(|(back, fits)| Act::Answer(back, fits)),
        3 => Just(Act::Turn),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_left_of_a_client_that_has_gone(acts in vec(act(), 0..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let host = host(&clock());
            let ana = Peer::new(&host, "ana");
            ana.initialize();
            for act in acts {
                match act {
                    Act::Call(tool, id) => ana.request(id, "tools/call", json!({"name": tool})),
                    Act::Modern(tool, id) => ana.request(id, "tools/call", modern(json!({"name": tool}))),
                    Act::Listen(id) => {
                        let filter = json!({"notifications": {"toolsListChanged": true}});
                        ana.request(id, "subscriptions/listen", modern(filter));
                    }
                    Act::Cancel(id) => ana.say(&json!({
                        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id},
                    })),
                    Act::Answer(back, fits) => {
                        let heard = ana.heard();
                        let asked = heard.iter().filter(|message| message["method"].is_string() && message["id"].is_string());
                        let id = asked.rev().nth(back).map_or_else(|| json!("made up"), |asked| asked["id"].clone());
                        let result = if fits { json!({"action": "decline"}) } else { json!(5) };
                        ana.say(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
                    }
                    Act::Turn => tokio::task::yield_now().await,
                }
            }
            ana.connection.cancel_all();
            tokio::time::timeout(Duration::from_secs(10), ana.connection.settled()).await.expect("it settles");
            let left = ana.connection.left();
            assert_eq!(left, (0, 0, 0), "calls, answers awaited, questions");
            // The call's task may still hold on to its conversation for a turn or two.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            let Peer { connection, heard, outlet } = ana;
            drop((connection, outlet));
            assert_eq!(Arc::strong_count(&heard), 1, "nobody holds the way out any more");
        });
    }
}
