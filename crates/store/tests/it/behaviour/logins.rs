//! Logins: codes that work once and soon, browsers that end with their token, and digests only.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use countersign_gateway::audit::event::{Actor, ActorType};
use countersign_gateway::clock::Clock;
use countersign_gateway::ids::IdSource;
use countersign_gateway::session::credential::TokenName;
use countersign_gateway::session::login::{BROWSER_LIVES, CODE_LIVES, Entered, Logins};
use countersign_gateway::session::{Caller, Role, Transport};
use countersign_store::sqlite::tokens::Made;
use countersign_store::{Durability, Store};

use super::super::bench::{Bench, noon, options_at, verify};

fn at(bench: &Bench, clock: &Clock) -> Store {
    Store::open(
        bench.path(),
        options_at(bench.path(), Durability::Process, clock.clone()),
    )
    .unwrap()
}

fn token(store: &Store, name: &str) -> Made {
    let actor = Actor {
        kind: ActorType::Human,
        id: "ada".to_owned(),
    };
    let name = TokenName::parse(name).unwrap();
    store
        .create_token(Role::Approver, &name, None, actor, &IdSource::random())
        .unwrap()
}

fn events(store: &Store) -> Vec<(String, String)> {
    let rows = store.tail(0).unwrap();
    rows.into_iter().map(|row| (row.event_type, row.actor_id)).collect()
}

#[tokio::test]
async fn a_code_lets_one_browser_in_once() {
    let bench = Bench::new();
    let store = bench.open();
    let code = store.issue(&Caller::person("ada")).await.unwrap();
    assert!(
        code.starts_with("cs_login_") && code.len() == "cs_login_".len() + 64,
        "{code}"
    );
    assert!(
        store.who(&code).await.unwrap().is_none(),
        "a code is no browser's secret"
    );
    let Entered { secret, caller } = store.redeem(&code).await.unwrap().unwrap();
    assert_eq!(
        (caller.role, caller.actor.id.as_str(), caller.transport),
        (Role::Operator, "ada", Transport::Console)
    );
    assert_eq!(
        caller.credential,
        Caller::person("ada").credential,
        "the same person as at a terminal"
    );
    assert!(store.redeem(&code).await.unwrap().is_none(), "a second time");
    assert!(
        store.redeem(&secret).await.unwrap().is_none(),
        "a browser's secret is no code"
    );
    assert_eq!(store.who(&secret).await.unwrap(), Some(caller));
    store.leave(&secret).await.unwrap();
    assert!(store.who(&secret).await.unwrap().is_none(), "after logging out");
    store.leave(&secret).await.unwrap();
    let person = |kind: &str| (kind.to_owned(), "ada".to_owned());
    assert_eq!(events(&store), [person("auth.login"), person("auth.logout")]);
    verify(&store).unwrap();
}

#[test]
fn of_two_who_redeem_a_code_at_once_one_gets_in() {
    let bench = Bench::new();
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    for _ in 0..8 {
        let code = runtime().block_on(bench.open().issue(&Caller::person("ada"))).unwrap();
        let ready = Arc::new(Barrier::new(2));
        let tries: Vec<_> = (0..2)
            .map(|_| {
                let (store, code, ready) = (bench.open(), code.clone(), ready.clone());
                std::thread::spawn(move || {
                    ready.wait();
                    runtime().block_on(store.redeem(&code)).unwrap().is_some()
                })
            })
            .collect();
        let entered = tries.into_iter().map(|it| it.join().unwrap());
        assert_eq!(entered.filter(|entered| *entered).count(), 1);
    }
}

#[tokio::test]
async fn codes_and_browsers_end_by_the_clock() {
    let bench = Bench::new();
    let clock = Clock::fixed(noon());
    let store = at(&bench, &clock);
    let (early, late) = (
        store.issue(&Caller::person("ada")).await.unwrap(),
        store.issue(&Caller::person("ada")).await.unwrap(),
    );
    clock.advance(CODE_LIVES - Duration::from_millis(1));
    let browser = store.redeem(&early).await.unwrap().unwrap().secret;
    clock.advance(Duration::from_millis(1));
    assert!(store.redeem(&late).await.unwrap().is_none(), "a code that is too old");
    clock.advance(BROWSER_LIVES - Duration::from_millis(2));
    assert!(store.who(&browser).await.unwrap().is_some());
    clock.advance(Duration::from_millis(1));
    assert!(store.who(&browser).await.unwrap().is_none(), "a working day is over");
    store.issue(&Caller::person("ada")).await.unwrap();
    let kept = bench.run("SELECT count(*) FROM logins").unwrap();
    assert_eq!(kept, "1", "what has ended is not kept");
}

#[tokio::test]
async fn a_revoked_token_ends_its_browsers_and_codes() {
    let bench = Bench::new();
    let store = bench.open();
    let Made { credential, .. } = token(&store, "phone");
    let entered = store.enter(&credential).await.unwrap();
    assert_eq!(entered.caller.role, Role::Approver);
    // What a browser that came with the token hands on ends with the token, too.
    let code = store.issue(&entered.caller).await.unwrap();
    let other = store.issue(&entered.caller).await.unwrap();
    let second = store.redeem(&other).await.unwrap().unwrap();
    assert!(store.who(&second.secret).await.unwrap().is_some());
    let actor = Caller::person("ada").actor;
    store.revoke_token("phone", actor, &bench.ids).unwrap();
    assert!(store.who(&entered.secret).await.unwrap().is_none());
    assert!(store.who(&second.secret).await.unwrap().is_none());
    assert!(store.redeem(&code).await.unwrap().is_none());
    assert!(!events(&store).iter().any(|(kind, _)| kind == "auth.logout"));
}

#[tokio::test]
async fn only_digests_of_codes_and_secrets_are_kept() {
    let bench = Bench::new();
    let store = bench.open();
    let (code, unused) = (
        store.issue(&Caller::person("ada")).await.unwrap(),
        store.issue(&Caller::person("ada")).await.unwrap(),
    );
    let browser = store.redeem(&code).await.unwrap().unwrap().secret;
    drop(store);
    for secret in [&code, &unused, &browser] {
        let secret = secret.rsplit('_').next().unwrap().as_bytes();
        for file in std::fs::read_dir(bench.path()).unwrap().flatten() {
            let Ok(bytes) = std::fs::read(file.path()) else {
                continue;
            };
            let found = bytes.windows(secret.len()).any(|window| window == secret);
            assert!(!found, "a secret is in `{}`", file.path().display());
        }
    }
}

#[tokio::test]
async fn an_agent_gets_no_code_and_a_login_does_not_change() {
    let bench = Bench::new();
    let store = bench.open();
    let agent = Caller::anonymous_agent(Transport::Stdio);
    assert!(store.issue(&agent).await.is_err());
    store.issue(&Caller::person("ada")).await.unwrap();
    for change in [
        "role = 'viewer'",
        "expires_at_ms = 9999999999999",
        "name = 'eve'",
        "kind = 'browser'",
    ] {
        let refused = bench.run(&format!("UPDATE logins SET {change}")).unwrap_err();
        assert!(
            refused.to_string().contains("a login does not change"),
            "{change}: {refused}"
        );
    }
}
