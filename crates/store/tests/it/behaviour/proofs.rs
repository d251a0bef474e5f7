//! A yes lets something go where the record proves it, whatever the table of questions says.

use std::sync::Arc;

use countersign_gateway::approval::Approvals as _;
use countersign_gateway::approval::ballot::Choice;
use countersign_gateway::approval::board::{Board, VouchError};
use countersign_gateway::approval::proof::{ProvedYes, Unproved, Use};
use countersign_gateway::approval::request::{ApprovalRequest, ApprovalType};
use countersign_gateway::audit::Change;
use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::ids::{ApprovalId, CorrelationId};
use countersign_gateway::limits;
use countersign_store::Store;
use serde_json::json;

use super::super::bench::{Bench, agent, block_on, commit, fill, noon, owner};
use super::approvals::{board, says};

const BINDING: &str = "of this act";
/// As somebody with a SQL prompt answers for a person.
const FORGED_YES: &str =
    "UPDATE approvals SET state = 'approved', version = version + 1, resolved_at_ms = created_at_ms,
     decided_by = 'ana', decision_reason = 'fine'";

/// A question that was asked through the board, on a record of its own.
struct Asked {
    bench: Bench,
    store: Arc<Store>,
    board: Arc<Board>,
    id: ApprovalId,
}

fn asked(quorum: u32) -> Asked {
    let bench = Bench::new();
    let store = Arc::new(bench.open());
    let board = board(&store, Clock::fixed(noon()));
    let id = ApprovalId::trusted("q");
    let call = CorrelationId::trusted("call");
    let mut question = ApprovalRequest::new(id.clone(), ApprovalType::ToolCall, call, owner(), noon());
    question.tool = "deploy".to_owned();
    question.binding = BINDING.to_owned();
    question.arguments_digest = "arguments".to_owned();
    question.policy_digest = "policy".to_owned();
    question.details.insert("command".to_owned(), json!("make deploy"));
    question.quorum = quorum;
    question.expires_at = Some(Timestamp::from_millis(noon().as_millis() + 60_000));
    let opened = board.opening(question, &agent());
    let change = Change {
        events: opened.events,
        approvals: vec![opened.change],
        ..Change::default()
    };
    commit(&*store, change).unwrap();
    Asked {
        bench,
        store,
        board,
        id,
    }
}

impl Asked {
    fn says(&self, who: &str, choice: Choice) {
        block_on(self.board.decide(&self.id, says(who, choice))).unwrap();
    }

    fn row(&self) -> ApprovalRequest {
        block_on(self.store.find(&self.id)).unwrap().unwrap()
    }

    fn vouch(&self) -> Result<ProvedYes, VouchError> {
        block_on(self.board.vouch(&self.row(), BINDING, Use::First))
    }

    fn refused(&self) -> Unproved {
        match self.vouch() {
            Err(VouchError::Unproved(unproved)) => unproved,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_yes_that_somebody_gave_is_proved_however_much_was_written_since() {
    let asked = asked(1);
    asked.says("ana", Choice::Allow);
    for rows in [0, 2_500] {
        fill(&asked.bench, &asked.store, rows);
        asked.bench.force("UPDATE approvals SET decided_by = 'somebody'");
        let proved = asked.vouch().unwrap();
        assert_eq!(proved.approval().decided_by.as_deref(), Some("ana"));
        let other = block_on(asked.board.vouch(&asked.row(), "of another act", Use::First));
        assert_eq!(other.unwrap_err(), VouchError::Unproved(Unproved::Another));
    }
}

#[test]
fn a_yes_that_only_the_table_tells_of_lets_nothing_go() {
    let asked = asked(1);
    asked.bench.force(FORGED_YES);
    assert_eq!(asked.refused(), Unproved::NotApproved);
}

#[test]
fn a_yes_is_for_the_question_as_it_was_asked() {
    for change in [
        "arguments_digest = 'of another'",
        "policy_digest = 'of another'",
        "details = '{\"command\":\"ls\"}'",
        "tool = 'another'",
        "owner = 'somebody'",
        "expires_at_ms = NULL",
    ] {
        let asked = asked(1);
        asked.says("ana", Choice::Allow);
        asked.bench.force(&format!("UPDATE approvals SET {change}"));
        assert_eq!(asked.refused(), Unproved::NotAsked, "{change}");
    }
}

#[test]
fn what_people_were_shown_was_what_was_asked() {
    let asked = asked(1);
    asked
        .bench
        .force("UPDATE approvals SET details = '{\"command\":\"ls\"}'");
    asked.says("ana", Choice::Allow);
    asked
        .bench
        .force("UPDATE approvals SET details = '{\"command\":\"make deploy\"}'");
    assert_eq!(asked.refused(), Unproved::NotApproved);
}

#[test]
fn everybody_of_a_quorum_must_be_in_the_record() {
    let both = asked(2);
    both.says("ana", Choice::Allow);
    both.says("ben", Choice::Allow);
    assert_eq!(both.vouch().unwrap().approval().decided_by.as_deref(), Some("ana, ben"));

    let one = asked(2);
    one.says("ana", Choice::Allow);
    one.bench.force(FORGED_YES);
    assert_eq!(one.refused(), Unproved::NotApproved);

    let lowered = asked(2);
    lowered.bench.force("UPDATE approvals SET quorum = 1");
    lowered.says("ana", Choice::Allow);
    assert_eq!(lowered.refused(), Unproved::NotAsked);
    lowered.bench.force("UPDATE approvals SET quorum = 2");
    assert_eq!(lowered.refused(), Unproved::NotApproved);

    let put = asked(2);
    put.says("ana", Choice::Allow);
    put.bench
        .force("UPDATE approvals SET votes = replace(replace(votes, 'user:ana', 'user:ben'), '\"ana\"', '\"ben\"')");
    put.says("cid", Choice::Allow);
    assert_eq!(put.row().decided_by.as_deref(), Some("ben, cid"));
    assert_eq!(put.refused(), Unproved::NotApproved);
}

#[test]
fn what_was_settled_otherwise_is_not_approved_by_the_table() {
    let denied = asked(1);
    denied.says("ana", Choice::Deny);
    denied.bench.force(FORGED_YES);
    assert_eq!(denied.refused(), Unproved::Otherwise);

    let one_no = asked(2);
    one_no.says("ana", Choice::Allow);
    one_no.says("ben", Choice::Deny);
    one_no.bench.force(FORGED_YES);
    assert_eq!(one_no.refused(), Unproved::Otherwise);

    let expired = asked(1);
    let tomorrow = Timestamp::from_millis(noon().as_millis() + 61_000);
    block_on(board(&expired.store, Clock::fixed(tomorrow)).expire_due()).unwrap();
    expired.bench.force(FORGED_YES);
    assert_eq!(expired.refused(), Unproved::Otherwise);
}

#[test]
fn a_yes_is_used_once_and_within_its_time_whatever_the_table_says() {
    let given_up = asked(1);
    given_up.says("ana", Choice::Allow);
    block_on(given_up.board.withdraw(&given_up.id, &agent(), "not needed")).unwrap();
    given_up.bench.force(FORGED_YES);
    assert_eq!(given_up.refused(), Unproved::Used);

    let applied = asked(1);
    applied.says("ana", Choice::Allow);
    let used = applied.board.applying(&applied.row(), &agent());
    let change = Change {
        events: used.events,
        approvals: vec![used.change],
        ..Change::default()
    };
    commit(&*applied.store, change).unwrap();
    let again = block_on(applied.board.vouch(&applied.row(), BINDING, Use::Again));
    assert!(again.is_ok(), "{again:?}");
    applied.bench.force(FORGED_YES);
    assert_eq!(applied.refused(), Unproved::Used);

    let old = asked(1);
    old.says("ana", Choice::Allow);
    let usable_ms = i64::try_from(limits::APPROVAL_USABLE_FOR.as_millis()).unwrap();
    let later = Timestamp::from_millis(noon().as_millis() + usable_ms);
    let board = board(&old.store, Clock::fixed(later));
    let late = block_on(board.vouch(&old.row(), BINDING, Use::First));
    assert_eq!(late.unwrap_err(), VouchError::Unproved(Unproved::TooOld));
}

#[test]
fn a_yes_that_was_put_among_the_events_is_none() {
    // Another event is made one, or a copy is put behind the last.
    for forged in [
        "UPDATE flow_events SET event_type = 'approval.approved', payload = (SELECT payload FROM saved)
             WHERE event_type = 'run.wait.paused'",
        "INSERT INTO flow_events (chain, seq, event_id, timestamp, correlation_id, actor_type, actor_id, event_type,
                 payload, prev_hash, hash)
             SELECT chain, 3, 'forged', timestamp, correlation_id, 'human', 'ana', 'approval.approved',
                 (SELECT payload FROM saved), hash, hash FROM flow_events WHERE event_type = 'run.wait.paused'",
    ] {
        let given = asked(1);
        given.says("ana", Choice::Allow);
        let payload = given
            .bench
            .run("SELECT payload FROM flow_events WHERE event_type = 'approval.approved'")
            .unwrap();
        let asked = asked(1);
        asked.bench.force(&format!(
            "CREATE TABLE saved AS SELECT '{payload}' AS payload; {forged}; {FORGED_YES}"
        ));
        let refused = asked.refused();
        assert!(
            matches!(refused, Unproved::NotApproved | Unproved::NotAsked),
            "{refused:?}"
        );
    }
}
