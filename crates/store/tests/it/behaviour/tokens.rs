//! Tokens: kept as digests, recorded, and known to whoever serves.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use countersign_gateway::audit::Change;
use countersign_gateway::audit::event::{Actor, ActorType, EventType};
use countersign_gateway::clock::Clock;
use countersign_gateway::ids::IdSource;
use countersign_gateway::run::keeping::RunChange;
use countersign_gateway::run::lifecycle::RunStep;
use countersign_gateway::run::state::Run;
use countersign_gateway::run::telling;
use countersign_gateway::session::credential::{Credentials, TokenName};
use countersign_gateway::session::{Role, Transport};
use countersign_store::sqlite::tokens::{Made, Revoked, TokenError};
use countersign_store::{Durability, Options, SqliteStore};

use crate::bench::{Bench, commit, noon, verify};

fn ada() -> Actor {
    Actor {
        kind: ActorType::Human,
        id: "ada".to_owned(),
    }
}

fn make(store: &SqliteStore, role: Role, name: &str) -> Made {
    let name = TokenName::parse(name).unwrap();
    store
        .create_token(role, &name, None, ada(), &IdSource::random())
        .unwrap()
}

/// Asks until the answer is the expected one, for no longer than a server may take to notice.
fn comes_to_be(condition: impl Fn() -> bool) {
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
    let sql = bench.sql();
    assert!(sql.execute("UPDATE tokens SET role = 'operator'", []).is_err());
    assert!(sql.execute("UPDATE tokens SET digest = zeroblob(32)", []).is_err());
    store.revoke_token("wall", ada(), &bench.ids).unwrap();
    assert!(sql.execute("UPDATE tokens SET revoked_at_ms = NULL", []).is_err());
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

#[test]
fn a_store_that_cannot_be_read_lets_nobody_new_in() {
    let bench = Bench::new();
    let serving = bench.open();
    let known = make(&serving, Role::Agent, "known");
    let newer = make(&serving, Role::Agent, "new");
    let credentials = serving.credentials();
    let untouched = serving.credentials();
    assert!(credentials.authenticate(&known.token).is_some());
    let database = bench.database();
    let away = database.with_extension("away");
    std::fs::rename(&database, &away).unwrap();
    assert_eq!(untouched.authenticate(&newer.token), None);
    std::thread::sleep(Duration::from_millis(300));
    assert!(
        credentials.authenticate(&known.token).is_some(),
        "whoever was known stays known"
    );
    std::fs::rename(&away, &database).unwrap();
    comes_to_be(|| untouched.authenticate(&newer.token).is_some());
}

fn run(store: &SqliteStore, bench: &Bench) -> Run {
    let run = crate::runs::run("r1", "run:dev", Some(12));
    let event = telling::draft(
        &run,
        bench.ids.event(),
        run.created_at,
        ada(),
        EventType::RunEnqueued,
        telling::told(&run).finish(),
    );
    let change = Change {
        events: vec![event],
        runs: vec![RunChange::new(run.clone())],
        ..Change::default()
    };
    commit(store, change).unwrap();
    run
}

fn end(store: &SqliteStore, bench: &Bench, run: &Run) {
    let next = run.after(RunStep::Cancel, run.created_at).unwrap();
    let event = telling::draft(
        &next,
        bench.ids.event(),
        next.updated_at,
        ada(),
        EventType::RunCanceled,
        telling::told(&next).finish(),
    );
    let change = Change {
        events: vec![event],
        runs: vec![RunChange::over(run.version, next)],
        ..Change::default()
    };
    commit(store, change).unwrap();
}

fn run_token(store: &SqliteStore, name: &str, lives: Duration) -> Result<Made, TokenError> {
    let name = TokenName::parse(name).unwrap();
    store.create_run_token(&name, "r1", lives, ada(), &IdSource::random())
}

#[test]
fn a_runs_token_says_whose_it_is_and_carries_the_run() {
    let bench = Bench::new();
    let store = bench.open();
    let run = run(&store, &bench);
    let made = run_token(&store, "agent-of-r1", Duration::from_secs(99)).unwrap();
    let body = made.token.split('.').nth(1).unwrap();
    let body = URL_SAFE_NO_PAD.decode(body).unwrap();
    let claims: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let seconds = run.created_at.as_millis() / 1_000;
    assert_eq!(
        claims,
        serde_json::json!({
            "sub": "run:r1", "run_id": "r1", "correlation_id": "c-r1", "project_id": "shop", "namespace": "shop-dev",
            "runtime_mode": "full-env", "iat": seconds, "exp": seconds + 99, "jti": made.credential.id.as_str(),
        })
    );
    let found = store.credentials().authenticate(&made.token).unwrap();
    let caller = found.caller(Transport::StreamableHttp);
    assert_eq!(caller.run.as_deref(), Some(&run.context()));
    assert_eq!(caller.role, Role::Agent);
}

#[test]
fn a_runs_token_ends_with_its_run_by_itself_and_by_hand() {
    let bench = Bench::new();
    let clock = Clock::fixed(noon());
    let store = SqliteStore::open(bench.path(), Options::new(Durability::Process, clock.clone())).unwrap();
    let run = run(&store, &bench);
    let known = store.credentials();
    let brief = run_token(&store, "brief", Duration::from_secs(60)).unwrap();
    let long = run_token(&store, "long", Duration::from_secs(99 * 24 * 3_600)).unwrap();
    let revoked = run_token(&store, "revoked", Duration::from_secs(60)).unwrap();
    assert_eq!(
        long.credential.expires_at,
        Some(noon().after(Duration::from_secs(7 * 24 * 3_600))),
        "never longer than a week"
    );
    for made in [&brief, &long, &revoked] {
        assert!(known.authenticate(&made.token).is_some());
    }
    store.revoke_token("revoked", ada(), &bench.ids).unwrap();
    comes_to_be(|| known.authenticate(&revoked.token).is_none());
    clock.advance(Duration::from_secs(60));
    assert!(known.authenticate(&brief.token).is_none());
    assert!(!known.is_in_force(&brief.credential.id));
    assert!(known.authenticate(&long.token).is_some());
    end(&store, &bench, &run);
    comes_to_be(|| known.authenticate(&long.token).is_none());
    let late = run_token(&store, "late", Duration::from_secs(60));
    assert!(matches!(late, Err(TokenError::RunEnded(_))));
    let unknown = store.create_run_token(
        &TokenName::parse("x").unwrap(),
        "nothing",
        Duration::from_secs(1),
        ada(),
        &bench.ids,
    );
    assert!(matches!(unknown, Err(TokenError::UnknownRun(_))));
}

#[test]
fn a_row_alone_makes_no_token_of_a_run() {
    let bench = Bench::new();
    let store = bench.open();
    run(&store, &bench);
    let made = run_token(&store, "a", Duration::from_secs(60)).unwrap();
    let forged = made.token.rsplit_once('.').unwrap().0.to_owned() + ".AAAA";
    let digest = countersign_gateway::session::credential::digest(&forged);
    bench
        .sql()
        .execute(
            "INSERT INTO tokens (id, role, name, digest, created_at_ms, run) VALUES ('tok_x', 'agent', 'x', ?1, 0, 'r1')",
            [digest],
        )
        .unwrap();
    assert!(store.credentials().authenticate(&forged).is_none());
    assert!(store.credentials().authenticate(&made.token).is_some());
}
