//! Tokens of runs and of jobs.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use countersign_gateway::audit::Change;
use countersign_gateway::audit::event::{Actor, ActorType, EventType};
use countersign_gateway::clock::Clock;
use countersign_gateway::ids::IdSource;
use countersign_gateway::job::keeping::{Hold, JobChange, JobSessionChange};
use countersign_gateway::job::lifecycle::JobStep;
use countersign_gateway::run::keeping::RunChange;
use countersign_gateway::run::lifecycle::RunStep;
use countersign_gateway::run::state::Run;
use countersign_gateway::run::telling;
use countersign_gateway::session::credential::TokenName;
use countersign_gateway::session::{Role, Transport};
use countersign_store::sqlite::tokens::{Made, TokenError};
use countersign_store::{Durability, Store};

use super::super::bench::{Bench, commit, noon, options_at, verify};
use super::tokens::comes_to_be;

fn ada() -> Actor {
    Actor {
        kind: ActorType::Human,
        id: "ada".to_owned(),
    }
}

fn run(store: &Store, bench: &Bench) -> Run {
    let run = super::runs::run("r1", "run:dev", Some(12));
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

fn end(store: &Store, bench: &Bench, run: &Run) {
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

fn run_token(store: &Store, name: &str, lives: Duration) -> Result<Made, TokenError> {
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
    let store = Store::open(
        bench.path(),
        options_at(bench.path(), Durability::Process, clock.clone()),
    )
    .unwrap();
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
    let digest = bench.bytes(&digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let row = format!(
        "INSERT INTO tokens (id, role, name, digest, created_at_ms, run) VALUES ('tok_x', 'agent', 'x', {digest}, 0, 'r1')"
    );
    bench.run(&row).unwrap();
    assert!(store.credentials().authenticate(&forged).is_none());
    assert!(store.credentials().authenticate(&made.token).is_some());
}

#[test]
fn a_jobs_agent_is_known_at_once_and_by_its_last_token_only() {
    let bench = Bench::new();
    let store = bench.open();
    let run = run(&store, &bench);
    let (job, session) = super::runs::job_of(&run);
    let mut begun = JobChange::new(job.clone());
    begun.session = Some(JobSessionChange { session, from: None });
    let change = |job: JobChange| Change {
        events: vec![bench.draft(&serde_json::json!({}))],
        jobs: vec![job],
        ..Change::default()
    };
    commit(&store, change(begun)).unwrap();
    let known = store.credentials();
    let first = store.create_job_token(&job, &ada(), &bench.ids).unwrap();
    let found = known.authenticate(&first.token).expect("it comes back at once");
    let caller = found.caller(Transport::StreamableHttp);
    assert_eq!(caller.job.unwrap().job_id, job.id);
    assert_eq!(caller.run.as_deref(), Some(&run.context()));
    let second = store.create_job_token(&job, &ada(), &bench.ids).unwrap();
    assert!(known.authenticate(&first.token).is_none());
    assert!(known.authenticate(&second.token).is_some());
    let stray = || store.stray_job_tokens().unwrap();
    assert_eq!(stray().len(), 1, "nobody looks after the job");
    let mut taken = JobChange::over(1, job.step(JobStep::Start, noon()).unwrap());
    taken.hold = Hold::Take { places: 1 };
    commit(&store, change(taken)).unwrap();
    assert_eq!(stray(), []);
    end(&store, &bench, &run);
    comes_to_be(|| known.authenticate(&second.token).is_none());
    verify(&store).unwrap();
}
