//! Tokens: kept as digests, recorded, and known to whoever serves.

use std::time::{Duration, Instant};

use countersign_gateway::audit::event::{Actor, ActorType};
use countersign_gateway::ids::IdSource;
use countersign_gateway::session::Role;
use countersign_gateway::session::credential::TokenName;
use countersign_store::Store;
use countersign_store::sqlite::tokens::{Made, Revoked, TokenError};

use super::super::bench::{Bench, verify};

fn ada() -> Actor {
    Actor {
        kind: ActorType::Human,
        id: "ada".to_owned(),
    }
}

pub(crate) fn make(store: &Store, role: Role, name: &str) -> Made {
    let name = TokenName::parse(name).unwrap();
    store
        .create_token(role, &name, None, ada(), &IdSource::random())
        .unwrap()
}

/// Asks until the answer is the expected one, for no longer than a server may take to notice.
pub(crate) fn comes_to_be(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "it never comes to be");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_token_is_kept_as_a_digest_only() {
    let bench = Bench::new();
    let store = bench.open();
    let Made { credential, token } = make(&store, Role::Agent, "laptop");
    let secret = token.strip_prefix("cs_agent_").unwrap();
    assert_eq!(secret.len(), 64);
    assert_eq!(store.tokens().unwrap(), [credential]);
    drop(store);
    for file in std::fs::read_dir(bench.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!found, "the token itself is in the state directory");
    }
}

#[test]
fn making_and_revoking_are_events() {
    let bench = Bench::new();
    let store = bench.open();
    let Made { credential, token } = make(&store, Role::Viewer, "wall");
    store.revoke_token("wall", ada(), &bench.ids).unwrap();
    let rows = store.tail(0).unwrap();
    let kinds: Vec<_> = rows
        .iter()
        .map(|row| (row.event_type.as_str(), row.actor_id.as_str()))
        .collect();
    assert_eq!(kinds, [("token.created", "ada"), ("token.revoked", "ada")]);
    for row in rows {
        assert!(row.payload.contains(credential.id.as_str()), "{}", row.payload);
        assert!(!row.payload.contains(&token), "{}", row.payload);
    }
    verify(&store).unwrap();
}

#[test]
fn a_name_belongs_to_one_token_in_force() {
    let bench = Bench::new();
    let store = bench.open();
    let first = make(&store, Role::Agent, "ci");
    let name = TokenName::parse("ci").unwrap();
    let again = store.create_token(Role::Viewer, &name, None, ada(), &bench.ids);
    assert_eq!(
        again.unwrap_err().to_string(),
        "a token named `ci` is in force already; revoke it first or choose another name"
    );
    assert_eq!(store.tail(0).unwrap().len(), 1, "a refusal leaves nothing");
    let Revoked::Now(revoked) = store.revoke_token("ci", ada(), &bench.ids).unwrap() else {
        panic!("it was in force");
    };
    assert_eq!(revoked.id, first.credential.id);
    let second = make(&store, Role::Viewer, "ci");
    // By name the one in force is meant, by id either.
    let id = first.credential.id.as_str();
    assert!(matches!(
        store.revoke_token(id, ada(), &bench.ids).unwrap(),
        Revoked::Before(_)
    ));
    let Revoked::Now(revoked) = store.revoke_token("ci", ada(), &bench.ids).unwrap() else {
        panic!("the second is in force");
    };
    assert_eq!(revoked.id, second.credential.id);
    assert!(matches!(
        store.revoke_token("nobody", ada(), &bench.ids),
        Err(TokenError::Unknown(_))
    ));
}

#[test]
fn plain_sql_cannot_raise_a_token_or_bring_one_back() {
    let bench = Bench::new();
    let store = bench.open();
    make(&store, Role::Viewer, "wall");
    assert!(bench.run("UPDATE tokens SET role = 'operator'").is_err());
    assert!(bench.run("UPDATE tokens SET digest = zeroblob(32)").is_err());
    store.revoke_token("wall", ada(), &bench.ids).unwrap();
    assert!(bench.run("UPDATE tokens SET revoked_at_ms = NULL").is_err());
}

#[test]
fn of_two_who_take_a_name_at_once_one_gets_it() {
    let bench = Bench::new();
    let stores = [bench.open(), bench.open()];
    let name = TokenName::parse("one").unwrap();
    let made: usize = std::thread::scope(|scope| {
        let makers = stores
            .each_ref()
            .map(|store| scope.spawn(|| store.create_token(Role::Agent, &name, None, ada(), &bench.ids).is_ok()));
        makers.into_iter().map(|maker| usize::from(maker.join().unwrap())).sum()
    });
    assert_eq!(made, 1);
    assert_eq!(verify(&stores[0]).unwrap().rows, 1);
}

#[test]
fn what_another_process_makes_and_revokes_is_known_soon() {
    let bench = Bench::new();
    let serving = bench.open();
    let credentials = serving.credentials();
    let elsewhere = bench.open();
    assert_eq!(credentials.authenticate("cs_agent_nothing"), None);
    let Made { credential, token } = make(&elsewhere, Role::Operator, "ada");
    comes_to_be(|| credentials.authenticate(&token).as_ref() == Some(&credential));
    let other = make(&elsewhere, Role::Agent, "bob");
    comes_to_be(|| credentials.authenticate(&other.token).is_some());
    elsewhere.revoke_token("ada", ada(), &bench.ids).unwrap();
    comes_to_be(|| credentials.authenticate(&token).is_none());
    assert!(credentials.authenticate(&other.token).is_some());
    for wrong in [
        "",
        "cs_operator_",
        &token[..token.len() - 1],
        &format!("{token}0"),
        &token.to_uppercase(),
    ] {
        assert_eq!(credentials.authenticate(wrong), None, "{wrong}");
    }
}
