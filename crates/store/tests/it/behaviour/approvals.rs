//! Approvals in the database: written with their events or not at all, decided once however many decide,
//! and kept for a caller who comes back.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::approval::ballot::{Ballot, Choice, Decider, OwnRequests};
use countersign_gateway::approval::board::{Board, BoardParts, DecideError, Decided};
use countersign_gateway::approval::lifecycle::ApprovalStep;
use countersign_gateway::approval::request::{ApprovalChange, ApprovalRequest, ApprovalType, AskedFor};
use countersign_gateway::approval::{Alone, ApprovalFilter, Approvals as _, Bell as _};
use countersign_gateway::audit::event::{ApprovalState, Draft, EventType};
use countersign_gateway::audit::reading::Filter;
use countersign_gateway::audit::redact::{Config, Redactor};
use countersign_gateway::audit::{Change, Record as _, RecordError};
use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::ids::{ApprovalId, CorrelationId, IdSource, RequestId};
use countersign_gateway::limits;
use countersign_gateway::policy::approvers::ApprovalMode;
use countersign_gateway::session::{Caller, Role, Transport};
use countersign_store::wake::{Doorbell, Knock};
use countersign_store::{Durability, Store};
use serde_json::{Value, json};

use super::super::bench::{Bench, agent, block_on, commit, noon, open_at, options_at, owner, this_test, verify};
use super::tokens::{comes_to_be, make};

fn asked(name: &str) -> ApprovalRequest {
    let mut approval = ApprovalRequest::new(
        ApprovalId::trusted(name),
        ApprovalType::ExecCommand,
        CorrelationId::trusted(format!("call-{name}")),
        owner(),
        noon(),
    );
    approval.tool = "execute_process".to_owned();
    approval.binding = format!("binding of {name}");
    approval.command = Some(AskedFor {
        request_id: RequestId::trusted(name),
        parks: true,
    });
    approval.details.insert("command".to_owned(), json!("touch x"));
    approval.remaining_ms = 30_000;
    approval
}

fn event(bench: &Bench, approval: &ApprovalRequest, kind: EventType) -> Draft {
    let request_id = approval.command.as_ref().map(|command| command.request_id.as_str());
    let payload = json!({"approval_id": approval.id.as_str(), "request_id": request_id});
    let correlation = approval.correlation_id.clone();
    Draft::new(bench.ids.event(), noon(), correlation, agent(), kind, &payload).in_state(approval.state())
}

/// The question and the command that waits for it, as the spine writes them.
fn opening(bench: &Bench, approval: &ApprovalRequest) -> Change {
    let name = approval.id.as_str();
    let mut change = bench.opening(name, "d");
    change.events.push(event(bench, approval, EventType::ApprovalRequested));
    change.approvals.push(ApprovalChange {
        approval: approval.clone(),
        from: None,
    });
    change
}

fn step(bench: &Bench, approval: &ApprovalRequest, step: ApprovalStep, kind: EventType) -> (ApprovalRequest, Change) {
    let next = approval.clone().step(step, noon()).unwrap();
    let change = Change {
        events: vec![event(bench, &next, kind)],
        approvals: vec![ApprovalChange {
            approval: next.clone(),
            from: Some(approval.version),
        }],
        ..Change::default()
    };
    (next, change)
}

pub(crate) fn board(store: &Arc<Store>, clock: Clock) -> Arc<Board> {
    Board::new(BoardParts {
        record: store.clone(),
        approvals: store.clone(),
        bell: Arc::new(Alone),
        approvers: Vec::new(),
        redactor: Redactor::new(Config::default()),
        clock,
        ids: IdSource::random(),
    })
}

fn everything() -> ApprovalFilter {
    ApprovalFilter {
        states: Vec::new(),
        automatic: None,
        limit: 9,
    }
}

pub(crate) fn says(user: &str, choice: Choice) -> Ballot {
    Ballot {
        choice,
        by: Decider::person(user, OwnRequests::Refused),
        reason: "so it is".to_owned(),
        answer: None,
    }
}

#[test]
fn a_question_reads_back_whole() {
    let bench = Bench::new();
    let store = bench.open();
    let mut approval = asked("a");
    approval.job_id = Some("job".to_owned());
    approval.run_id = Some("run".to_owned());
    approval.quorum = 2;
    approval.expires_at = Some(Timestamp::from_millis(noon().as_millis() + 5));
    commit(&store, opening(&bench, &approval)).unwrap();
    assert_eq!(block_on(store.find(&approval.id)).unwrap(), Some(approval.clone()));
    let voted = approval
        .clone()
        .with(&says("ana", Choice::Allow), None, noon())
        .unwrap();
    let change = Change {
        events: vec![event(&bench, &voted, EventType::ApprovalApproved)],
        approvals: vec![ApprovalChange {
            approval: voted.clone(),
            from: Some(1),
        }],
        ..Change::default()
    };
    commit(&store, change).unwrap();
    assert_eq!(block_on(store.find(&approval.id)).unwrap(), Some(voted.clone()));
    assert_eq!(
        block_on(store.held(&owner(), &approval.binding)).unwrap(),
        Some(voted.clone())
    );
    let command = RequestId::trusted("a");
    assert_eq!(
        block_on(store.of_command(&owner(), &command)).unwrap(),
        Some(voted.clone())
    );
    assert_eq!(
        block_on(store.beginning_with("a", 9)).unwrap(),
        std::slice::from_ref(&voted)
    );
    assert!(block_on(store.due(noon(), 9)).unwrap().is_empty());
    let later = Timestamp::from_millis(noon().as_millis() + 5);
    assert_eq!(block_on(store.due(later, 9)).unwrap(), [voted]);
    verify(&store).unwrap();
}

#[test]
fn a_step_over_another_version_writes_nothing() {
    let bench = Bench::new();
    let store = bench.open();
    let approval = asked("a");
    commit(&store, opening(&bench, &approval)).unwrap();
    let (_, yes) = step(&bench, &approval, ApprovalStep::Approve, EventType::ApprovalApproved);
    let (_, no) = step(&bench, &approval, ApprovalStep::Deny, EventType::ApprovalDenied);
    commit(&store, yes).unwrap();
    for _ in 0..2 {
        assert_eq!(commit(&store, no.clone()), Err(RecordError::ApprovalMoved));
        assert_eq!(
            block_on(store.commit_alone(no.clone())),
            Err(RecordError::ApprovalMoved)
        );
    }
    assert_eq!(
        verify(&store).unwrap().rows,
        3,
        "the event of a refused step is not there"
    );
    let kept = block_on(store.find(&approval.id)).unwrap().unwrap();
    assert_eq!(kept.state(), ApprovalState::Approved);
}

#[test]
fn an_act_is_let_go_once_over_both_lanes() {
    let bench = Bench::new();
    let store = bench.open();
    let approval = asked("a");
    commit(&store, opening(&bench, &approval)).unwrap();
    let (approved, yes) = step(&bench, &approval, ApprovalStep::Approve, EventType::ApprovalApproved);
    commit(&store, yes).unwrap();
    let (_, first) = step(&bench, &approved, ApprovalStep::Apply, EventType::ActApplied);
    let (_, second) = step(&bench, &approved, ApprovalStep::Apply, EventType::ActApplied);
    assert!(block_on(store.commit_alone(first.clone())).is_ok());
    assert_eq!(commit(&store, second), Err(RecordError::ApprovalMoved));
    assert!(commit(&store, first).is_ok(), "the same change twice is one");
    assert_eq!(verify(&store).unwrap().rows, 4);
}

#[test]
fn an_act_whose_command_has_ended_is_not_let_go() {
    let bench = Bench::new();
    let store = bench.open();
    let approval = asked("a");
    commit(&store, opening(&bench, &approval)).unwrap();
    let (approved, yes) = step(&bench, &approval, ApprovalStep::Approve, EventType::ApprovalApproved);
    commit(&store, yes).unwrap();
    commit(&store, bench.closing("a", "d", "failed")).unwrap();
    let (_, apply) = step(&bench, &approved, ApprovalStep::Apply, EventType::ActApplied);
    assert_eq!(commit(&store, apply), Err(RecordError::ApprovalMoved));
    let kept = block_on(store.find(&approval.id)).unwrap().unwrap();
    assert_eq!(kept.state(), ApprovalState::Approved);
    assert_eq!(
        block_on(store.held(&owner(), &approval.binding)).unwrap(),
        None,
        "nothing waits for it"
    );
}

#[test]
fn the_same_act_is_asked_about_once_at_a_time() {
    let bench = Bench::new();
    let store = bench.open();
    let first = asked("a");
    commit(&store, opening(&bench, &first)).unwrap();
    let mut second = asked("b");
    second.binding = first.binding.clone();
    assert_eq!(
        commit(&store, opening(&bench, &second)),
        Err(RecordError::ApprovalMoved)
    );
    let stored = block_on(store.command(&owner(), &RequestId::trusted("b"))).unwrap();
    assert_eq!(stored, None, "nor is its command there");
    let (_, no) = step(&bench, &first, ApprovalStep::Deny, EventType::ApprovalDenied);
    commit(&store, no).unwrap();
    commit(&store, bench.closing("a", "d", "rejected")).unwrap();
    commit(&store, opening(&bench, &second)).unwrap();
    assert_eq!(block_on(store.held(&owner(), &first.binding)).unwrap(), Some(second));
}

#[test]
fn whoever_writes_past_us_cannot_move_an_answer_or_take_a_step_back() {
    let bench = Bench::new();
    let store = bench.open();
    let approval = asked("a");
    commit(&store, opening(&bench, &approval)).unwrap();
    for statement in [
        "UPDATE approvals SET state = 'applied', resolved_at_ms = 1",
        "UPDATE approvals SET binding = 'of another act'",
        "UPDATE approvals SET details = '{}'",
        "UPDATE approvals SET owner = 'somebody'",
        "UPDATE approvals SET quorum = 2",
        "UPDATE approvals SET state = 'approved'",
    ] {
        assert!(bench.run(statement).is_err(), "{statement}");
    }
    bench
        .run("UPDATE approvals SET state = 'denied', resolved_at_ms = 1")
        .unwrap();
    assert!(
        bench
            .run("UPDATE approvals SET state = 'pending', resolved_at_ms = NULL")
            .is_err()
    );
    assert!(bench.run("UPDATE approvals SET state = 'approved'").is_err());
}

#[test]
fn what_the_whitelist_answered_is_kept_beside_its_command() {
    let bench = Bench::new();
    let store = bench.open();
    for name in ["a", "b"] {
        // Nothing is unique about these: the same command may run unasked at the same moment.
        let mut approval = asked(name).answered_by_whitelist("read-only");
        approval.binding = "the same".to_owned();
        approval.command.as_mut().unwrap().parks = false;
        commit(&store, opening(&bench, &approval)).unwrap();
        assert_eq!(block_on(store.find(&approval.id)).unwrap(), Some(approval));
    }
    commit(&store, opening(&bench, &asked("c"))).unwrap();
    let count = |automatic| {
        let filter = ApprovalFilter {
            automatic,
            ..everything()
        };
        block_on(store.list(filter)).unwrap().len()
    };
    assert_eq!((count(None), count(Some(true)), count(Some(false))), (3, 2, 1));
}

#[test]
fn lists_are_by_state_and_the_newest_is_last() {
    let bench = Bench::new();
    let store = bench.open();
    for name in ["a", "b", "c"] {
        commit(&store, opening(&bench, &asked(name))).unwrap();
    }
    let (_, no) = step(&bench, &asked("b"), ApprovalStep::Deny, EventType::ApprovalDenied);
    commit(&store, no).unwrap();
    let names = |states: &[ApprovalState], limit| -> Vec<String> {
        let found = block_on(store.list(ApprovalFilter {
            states: states.to_vec(),
            automatic: None,
            limit,
        }))
        .unwrap();
        found.iter().map(|approval| approval.id.to_string()).collect()
    };
    assert_eq!(names(&[], 9), ["a", "b", "c"]);
    assert_eq!(names(&[], 2), ["b", "c"]);
    assert_eq!(names(&[ApprovalState::Pending], 9), ["a", "c"]);
    assert_eq!(names(&[ApprovalState::Denied, ApprovalState::Expired], 9), ["b"]);
}

#[test]
fn a_command_that_waits_for_an_answer_is_not_abandoned() {
    let bench = Bench::new();
    for name in ["waits", "granted", "refused", "went-on"] {
        assert!(child(&bench, name, "").wait().unwrap().success(), "{name}");
    }
    let store = bench.open();
    let decide = |name: &str, what: ApprovalStep, kind| {
        let before = block_on(store.find(&ApprovalId::trusted(name))).unwrap().unwrap();
        let (_, change) = step(&bench, &before, what, kind);
        commit(&store, change).unwrap();
    };
    decide("granted", ApprovalStep::Approve, EventType::ApprovalApproved);
    decide("refused", ApprovalStep::Deny, EventType::ApprovalDenied);
    decide("went-on", ApprovalStep::Approve, EventType::ApprovalApproved);
    decide("went-on", ApprovalStep::Apply, EventType::ActApplied);
    // Whoever let the act go is this process; as if it had died since.
    bench.force("UPDATE open_commands SET process = '' WHERE request_id = 'went-on'");
    assert_eq!(store.sweep_abandoned(noon(), &bench.ids).unwrap(), 1);
    let ended = |name: &str| {
        let stored = block_on(store.command(&owner(), &RequestId::trusted(name)))
            .unwrap()
            .unwrap();
        stored
            .end
            .map(|end| serde_json::from_str::<Value>(&end.result).unwrap()["error_code"].clone())
    };
    assert_eq!(ended("went-on"), Some(json!("ABANDONED")));
    for name in ["waits", "granted", "refused"] {
        assert_eq!(ended(name), None, "{name}");
    }
    // A denial that nobody came back for ends the command after a day.
    let tomorrow = noon().after(Duration::from_secs(25 * 3_600));
    assert_eq!(store.sweep_abandoned(tomorrow, &bench.ids).unwrap(), 1);
    assert_eq!(ended("refused"), Some(json!("APPROVAL_DENIED")));
    assert_eq!(ended("waits"), None);
}

#[test]
fn an_answer_that_no_event_tells_of_does_not_say_how_a_command_ended() {
    let bench = Bench::new();
    assert!(child(&bench, "waits", "").wait().unwrap().success());
    let store = bench.open();
    bench.force(
        "UPDATE approvals SET state = 'denied', decided_by = 'alice', decision_reason = 'never ran',
             resolved_at_ms = created_at_ms",
    );
    let tomorrow = noon().after(Duration::from_secs(25 * 3_600));
    assert_eq!(store.sweep_abandoned(tomorrow, &bench.ids).unwrap(), 1);
    let records = store.query_commands(&Filter::everything()).unwrap();
    let record = records.into_iter().next().unwrap().unwrap();
    assert_eq!(record["error_code"], "ABANDONED", "{record}");
    assert!(!record.to_string().contains("alice"), "{record}");
}

#[test]
fn a_question_about_a_second_run_goes_with_its_process() {
    let bench = Bench::new();
    assert!(child(&bench, "again", "runs").wait().unwrap().success());
    let store = bench.open();
    assert_eq!(store.sweep_abandoned(noon(), &bench.ids).unwrap(), 1);
    let question = block_on(store.find(&ApprovalId::trusted("again"))).unwrap().unwrap();
    assert_eq!(question.state(), ApprovalState::Withdrawn);
    verify(&store).unwrap();
}

#[test]
fn settled_questions_are_pruned_with_the_rest_and_open_ones_stay() {
    let bench = Bench::new();
    let store = bench.open();
    for name in ["open", "done"] {
        commit(&store, opening(&bench, &asked(name))).unwrap();
    }
    let (_, no) = step(&bench, &asked("done"), ApprovalStep::Deny, EventType::ApprovalDenied);
    commit(&store, no).unwrap();
    let later = noon().after(Duration::from_secs(86_400 * 400));
    store.prune(later, &bench.ids).unwrap();
    assert_eq!(
        block_on(store.list(everything())).unwrap().len(),
        2,
        "its command has not ended"
    );
    commit(&store, bench.closing("done", "d", "rejected")).unwrap();
    store.prune(later, &bench.ids).unwrap();
    let left = block_on(store.list(everything())).unwrap();
    assert_eq!(left.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), ["open"]);
    verify(&store).unwrap();
}

const STATE: &str = "COUNTERSIGN_TEST_APPROVALS";
const ASKS: &str = "COUNTERSIGN_TEST_ASKS";
const KIND: &str = "COUNTERSIGN_TEST_KIND";
const RACES: &str = "COUNTERSIGN_TEST_RACES";

/// Not a test of its own: a process that asks and ends without an answer.
#[test]
fn child_asks() {
    let (Ok(state), Ok(name)) = (std::env::var(STATE), std::env::var(ASKS)) else {
        return;
    };
    let bench = Bench::new();
    let store = open_at(Path::new(&state)).unwrap();
    let mut approval = asked(&name);
    if std::env::var(KIND).is_ok_and(|kind| kind == "runs") {
        approval.command.as_mut().unwrap().parks = false;
    }
    commit(&store, opening(&bench, &approval)).unwrap();
}

fn child(bench: &Bench, name: &str, kind: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &this_test(module_path!(), "child_asks")])
        .env(STATE, bench.path())
        .env(ASKS, name)
        .env(KIND, kind)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Not a test of its own: a process that decides everything and lets go what was approved.
#[test]
fn child_decides() {
    let (Ok(state), Ok(races)) = (std::env::var(STATE), std::env::var(RACES)) else {
        return;
    };
    let me = format!("p{}", std::process::id());
    let choice = if std::env::var(KIND).unwrap() == "yes" {
        Choice::Allow
    } else {
        Choice::Deny
    };
    let options = options_at(Path::new(&state), Durability::Process, Clock::system());
    let store = Arc::new(Store::open(Path::new(&state), options).unwrap());
    let board = board(&store, Clock::system());
    for number in 0..races.parse::<u32>().unwrap() {
        let id = ApprovalId::trusted(format!("q{number}"));
        let decided = block_on(board.decide(&id, says(&me, choice))).unwrap();
        let first = matches!(decided, Decided::Now(_));
        let approval = decided.approval();
        let mut ran = false;
        if approval.state() == ApprovalState::Approved {
            let applying = board.applying(approval, &agent());
            let change = Change {
                events: applying.events,
                approvals: vec![applying.change],
                ..Change::default()
            };
            ran = block_on(store.commit_alone(change)).is_ok();
        }
        println!("\ndecided {number} {first} {ran}");
    }
}

#[test]
fn a_thousand_racing_decisions_settle_each_question_once_and_run_it_at_most_once() {
    const QUESTIONS: usize = 500;
    let bench = Bench::new();
    let store = bench.open();
    for number in 0..QUESTIONS {
        commit(&store, opening(&bench, &asked(&format!("q{number}")))).unwrap();
    }
    let children = ["yes", "no"].map(|kind| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &this_test(module_path!(), "child_decides"), "--nocapture"])
            .env(STATE, bench.path())
            .env(RACES, QUESTIONS.to_string())
            .env(KIND, kind)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    });
    let (mut first, mut ran) = (vec![0; QUESTIONS], vec![0; QUESTIONS]);
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        for line in text.lines().filter_map(|line| line.strip_prefix("decided ")) {
            let words: Vec<_> = line.split(' ').collect();
            let number: usize = words[0].parse().unwrap();
            first[number] += usize::from(words[1] == "true");
            ran[number] += usize::from(words[2] == "true");
        }
    }
    assert!(first.iter().all(|count| *count == 1), "{first:?}");
    assert!(ran.iter().all(|count| *count <= 1), "{ran:?}");
    verify(&store).unwrap();
    let count = |kind| {
        let filter = Filter {
            event_type: Some(kind),
            limit: usize::MAX >> 1,
            ..Filter::everything()
        };
        store.query_events(&filter).unwrap().len()
    };
    let (yes, no) = (count(EventType::ApprovalApproved), count(EventType::ApprovalDenied));
    assert_eq!(yes + no, QUESTIONS, "every decision is in the record, none twice");
    assert_eq!(count(EventType::ActApplied), ran.iter().sum::<usize>());
    assert_eq!(ran.iter().sum::<usize>(), yes, "what was approved ran");
}

#[test]
fn processes_wake_each_other_and_a_socket_of_the_dead_is_cleared_away() {
    block_on_io(async {
        let bench = Bench::new();
        let _store = bench.open();
        let (one, two) = (
            Doorbell::hang(bench.path()).unwrap(),
            Doorbell::hang(bench.path()).unwrap(),
        );
        let folder = bench.path().join("wake");
        // A name that nobody listens at.
        drop(std::os::unix::net::UnixDatagram::bind(folder.join("1-0")).unwrap());
        one.ring();
        let soon = Duration::from_secs(5);
        tokio::time::timeout(soon, two.rung()).await.expect("it rang");
        Knock::on(bench.path()).ring();
        for bell in [&one, &two] {
            tokio::time::timeout(soon, bell.rung()).await.expect("it rang");
        }
        assert!(!folder.join("1-0").exists());
        let quiet = tokio::time::timeout(Duration::from_millis(20), one.rung()).await;
        assert!(quiet.is_err(), "one does not hear itself");
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        drop((one, two));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    });
}

#[test]
fn a_deep_state_directory_has_a_bell_too() {
    block_on_io(async {
        let bench = Bench::new();
        let deep = bench.path().join("d".repeat(100)).join("e".repeat(60));
        std::fs::create_dir_all(&deep).unwrap();
        let (one, two) = (Doorbell::hang(&deep).unwrap(), Doorbell::hang(&deep).unwrap());
        one.ring();
        tokio::time::timeout(Duration::from_secs(5), two.rung())
            .await
            .expect("it rang");
    });
}

fn block_on_io<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

#[test]
fn what_is_the_owners_no_approver_decides() {
    let bench = Bench::new();
    let store = Arc::new(bench.open());
    let board = board(&store, Clock::fixed(noon()));
    for (name, mode, decides) in [
        ("a1", Some(ApprovalMode::Owner), false),
        ("a2", Some(ApprovalMode::Delegated), true),
        ("a3", None, true),
    ] {
        let mut approval = asked(name);
        approval.approval_mode = mode;
        commit(&*store, opening(&bench, &approval)).unwrap();
        assert_eq!(block_on(store.find(&approval.id)).unwrap().unwrap().approval_mode, mode);
        let says = |role| Ballot {
            choice: Choice::Allow,
            by: Decider::of(&Caller {
                role,
                ..Caller::person("ben")
            })
            .unwrap(),
            reason: "fine".to_owned(),
            answer: None,
        };
        let decided = block_on(board.decide(&approval.id, says(Role::Approver)));
        assert_eq!(decided.is_ok(), decides, "{mode:?}");
        if !decides {
            assert_eq!(decided, Err(DecideError::OwnersOnly));
            let owner = block_on(board.decide(&approval.id, says(Role::Operator)));
            assert!(matches!(owner, Ok(Decided::Now(_))));
        }
    }
}

#[test]
fn a_yes_of_a_token_that_was_revoked_since_no_longer_counts() {
    let bench = Bench::new();
    let store = Arc::new(bench.open());
    let clock = Clock::fixed(noon());
    let board = board(&store, clock.clone());
    let credentials = store.credentials();
    board.recognise(credentials.clone());
    let mut approval = asked("a");
    approval.quorum = 2;
    commit(&*store, opening(&bench, &approval)).unwrap();
    let yes = |name: &str| {
        let made = make(&store, Role::Approver, name).credential;
        let ballot = Ballot {
            choice: Choice::Allow,
            by: Decider::of(&made.caller(Transport::StreamableHttp)).unwrap(),
            reason: "fine".to_owned(),
            answer: None,
        };
        (made.id, block_on(board.decide(&approval.id, ballot)).unwrap())
    };
    let (revoked, first) = yes("ana");
    assert!(matches!(first, Decided::Counted(_)), "{first:?}");
    store.revoke_token(revoked.as_str(), agent(), &bench.ids).unwrap();
    comes_to_be(|| !credentials.is_in_force(&revoked));
    clock.advance(limits::TOKENS_KNOWN_WITHIN);
    let (_, second) = yes("ben");
    assert!(matches!(second, Decided::Counted(_)), "{second:?}");
    // With another token she says so again, and is one voice.
    let (_, third) = yes("ana");
    let Decided::Now(settled) = third else {
        panic!("{third:?}")
    };
    assert_eq!(settled.decided_by.as_deref(), Some("ben, ana"));
}
