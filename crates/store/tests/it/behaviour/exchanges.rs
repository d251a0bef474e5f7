//! Invocations and envelopes as they are found among the events.

use countersign_gateway::audit::event::{Draft, EventType};
use countersign_gateway::audit::reading::{Filter, Pick};
use countersign_gateway::audit::{Change, SessionChange};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{CorrelationId, SessionId};
use countersign_gateway::session::lifetime::{Session, SessionStep};
use countersign_gateway::session::{Caller, Transport};
use countersign_store::Store;
use serde_json::{Value, json};

use super::super::bench::{Bench, agent, commit, later, noon};

/// One call: events of these kinds, with what they have in common.
fn call(bench: &Bench, name: &str, at: Timestamp, events: &[(EventType, Value)]) -> Change {
    let drafts = events.iter().map(|(kind, more)| {
        let mut payload = json!({"tool": "execute_command", "request_id": name, "credential": "local"});
        payload
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let correlation = CorrelationId::trusted(format!("call-{name}"));
        Draft::new(bench.ids.event(), at, correlation, agent(), *kind, &payload)
    });
    Change {
        events: drafts.collect(),
        ..Change::default()
    }
}

fn received(transport: &str) -> (EventType, Value) {
    let mark = SessionId::trusted("s1").mark();
    let payload = json!({"command": "ls", "transport": transport, "rpc_id": "\"1\"", "session_id": mark});
    (EventType::CommandReceived, payload)
}

fn completed(status: &str) -> (EventType, Value) {
    let payload =
        json!({"status": status, "error_code": if status == "ok" { Value::Null } else { "CANCELLED".into() }});
    (EventType::CommandCompleted, payload)
}

fn invocations(store: &Store, filter: &Filter) -> Vec<Value> {
    let found = store.find_invocations(filter).unwrap();
    found
        .iter()
        .map(|found| store.read_invocation(found).unwrap().unwrap())
        .collect()
}

fn names(calls: &[Value]) -> Vec<&str> {
    let calls = calls.iter().filter_map(|call| call["correlation_id"].as_str());
    calls.filter_map(|name| name.strip_prefix("call-")).collect()
}

#[test]
fn an_early_answer_counts_and_the_terminal_does_not() {
    let bench = Bench::new();
    let store = bench.open();
    let answered = (
        EventType::ToolAnswered,
        json!({"status": "ok", "result": {"status": "running"}}),
    );
    let calls = [
        call(
            &bench,
            "long",
            noon(),
            &[received("stdio"), answered, completed("failed")],
        ),
        call(&bench, "open", noon(), &[received("stdio")]),
        call(&bench, "exec", noon(), &[received("terminal"), completed("ok")]),
        call(&bench, "short", noon(), &[received("sse"), completed("ok")]),
    ];
    for call in calls {
        commit(&store, call).unwrap();
    }
    let told = invocations(&store, &Filter::everything());
    assert_eq!(names(&told), ["long", "short"]);
    assert_eq!(told[0]["result"]["status"], "running");
    let newest = Filter {
        limit: 1,
        pick: Pick::Newest,
        ..Filter::everything()
    };
    assert_eq!(names(&invocations(&store, &newest)), ["short"]);
    let text = Filter {
        request_id: Some("1".to_owned()),
        ..Filter::everything()
    };
    assert_eq!(
        invocations(&store, &text).len(),
        2,
        "a client's id is found as text, too"
    );
    let envelopes = store.find_envelopes(&Filter::everything()).unwrap();
    assert_eq!(envelopes.len(), 3, "a call that is still open is a message already");
}

#[test]
fn an_early_answer_hides_the_end_of_its_own_command_alone() {
    let bench = Bench::new();
    let store = bench.open();
    let answered = (
        EventType::ToolAnswered,
        json!({"status": "ok", "result": {"status": "running"}}),
    );
    // All commands of a job stand under one correlation.
    let long = [received("http"), answered, completed("ok")];
    let short = [received("http"), completed("ok")];
    for (request, events) in [("long", long.as_slice()), ("short", short.as_slice())] {
        let mut change = call(&bench, request, noon(), events);
        for draft in &mut change.events {
            draft.correlation_id = CorrelationId::trusted("job-1");
        }
        commit(&store, change).unwrap();
    }
    let told = invocations(&store, &Filter::everything());
    let requests: Vec<&Value> = told.iter().map(|call| &call["result"]["status"]).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(requests[0], "running");
}

#[test]
fn a_session_is_named_while_it_is_kept_and_marked_after() {
    let bench = Bench::new();
    let store = bench.open();
    let session = Session::new(
        SessionId::trusted("s1"),
        &Caller::anonymous_agent(Transport::Sse),
        noon(),
    );
    let closed = session.clone().step(SessionStep::Close, noon()).unwrap();
    for (session, from) in [(session.clone(), None), (closed, Some(session.state()))] {
        let change = Change {
            session: Some(SessionChange { session, from }),
            ..Change::default()
        };
        commit(&store, change).unwrap();
    }
    commit(&store, call(&bench, "first", noon(), &[received("sse")])).unwrap();
    commit(&store, call(&bench, "first", later(), &[completed("ok")])).unwrap();
    commit(
        &store,
        call(&bench, "second", later(), &[received("sse"), completed("ok")]),
    )
    .unwrap();
    let told = invocations(&store, &Filter::everything());
    assert_eq!(
        told.iter().map(|call| &call["sessionId"]).collect::<Vec<_>>(),
        ["s1", "s1"]
    );
    store.prune(later(), &bench.ids).unwrap();
    let told = invocations(&store, &Filter::everything());
    assert_eq!(
        names(&told),
        ["first", "second"],
        "what is left of a call still tells of it"
    );
    assert_eq!(
        told[0].get("sessionId"),
        None,
        "the event that named its session is gone"
    );
    assert_eq!(told[1]["sessionId"], SessionId::trusted("s1").mark());
}

#[test]
fn a_payload_is_read_however_deep_it_nests() {
    let bench = Bench::new();
    let store = bench.open();
    let mut deep = json!(1);
    for _ in 0..500 {
        deep = json!([deep]);
    }
    let refused = (
        EventType::RequestRefused,
        json!({"method": "nope", "transport": "stdio", "params": {"x": deep}}),
    );
    let settled = (EventType::ToolCalled, json!({"status": "ok", "result": {"x": deep}}));
    commit(&store, call(&bench, "deep", noon(), &[refused, settled])).unwrap();
    let found = store.find_envelopes(&Filter::everything()).unwrap();
    let told = store.read_envelope(&found[0]).unwrap().unwrap();
    assert_eq!(told["params"]["x"], deep);
    let told = invocations(&store, &Filter::everything());
    assert_eq!(told[0]["result"]["x"], deep);
}

#[test]
fn a_damaged_row_does_not_hide_the_others() {
    let bench = Bench::new();
    let store = bench.open();
    for name in ["one", "two"] {
        let refused = (EventType::RequestRefused, json!({"method": name, "transport": "stdio"}));
        let called = (EventType::ToolCalled, json!({"status": "ok", "result": {}}));
        commit(&store, call(&bench, name, noon(), &[refused, called])).unwrap();
    }
    bench.force("UPDATE flow_events SET payload = '{' WHERE correlation_id = 'call-one'");
    let everything = Filter::everything();
    // Both events of a call tell of a message.
    let read = |found: &[_]| -> Vec<bool> { found.iter().map(|it| store.read_envelope(it).is_ok()).collect() };
    assert_eq!(
        read(&store.find_envelopes(&everything).unwrap()),
        [false, false, true, true]
    );
    let found = store.find_invocations(&everything).unwrap();
    let read: Vec<_> = found.iter().map(|it| store.read_invocation(it).is_ok()).collect();
    assert_eq!(read, [false, true]);
}
