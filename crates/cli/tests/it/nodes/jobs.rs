//! Jobs on several nodes: each is looked after by one of them at a time, and by another when that one is gone.

use serde_json::{Value, json};

use super::field::{A, B, Field};
use crate::agents::marked;
use crate::bench::Bench;
use crate::client::eventually;
use crate::jobs::with_agent;

fn field() -> Option<Field> {
    Field::empty(2, with_agent(Bench::new(), "jobs: {maxProcesses: 4}\n"))
}

/// A job that a node has begun while it was the only one.
fn begun_at(field: &mut Field, prompt: &str) -> String {
    field.serve(A);
    let session = field.session(A);
    let accepted = field.call(A, &session, 1, "start-task", json!({"agent": "mine", "prompt": prompt}));
    assert_eq!(accepted["status"], "accepted", "{accepted}");
    let job = accepted["jobId"].as_str().unwrap().to_owned();
    let running = format!(
        "SELECT count(*) FROM agent_processes JOIN jobs USING (job_id) WHERE job_id = '{job}' AND status = 'running'"
    );
    eventually("the agent is at work", || field.count(&running) == 1);
    job
}

/// The processes of a job's agents, on whichever node.
fn lives(job: &str) -> Vec<u32> {
    marked::in_environment(&format!("COUNTERSIGN_JOB={job}"))
}

/// However a job went: it began and ended once.
#[track_caller]
fn began_and_ended_once(field: &Field, job: &str) -> Vec<String> {
    let events = field.events(job);
    let count = |wanted: &[&str]| events.iter().filter(|kind| wanted.contains(&kind.as_str())).count();
    let ends = ["job-completed", "job-failed", "job-cancelled", "job-timeout"];
    assert_eq!(
        (count(&["job-created"]), count(&["job-started"]), count(&ends)),
        (1, 1, 1),
        "{events:?}"
    );
    let ended = format!(
        "SELECT count(*) FROM flow_events WHERE event_type IN ('job.completed', 'job.failed', 'job.cancelled', 'job.timeout')
             AND payload::json ->> 'job_id' = '{job}'"
    );
    assert_eq!(field.count(&ended), 1);
    events
}

#[test]
fn a_dead_nodes_job_is_taken_up_by_another_and_ends_once() {
    let Some(mut field) = field() else { return };
    let job = begun_at(&mut field, "work");
    field.serve(B);
    field.kill(A);
    field.age(A);
    let ended = field.until_job(&job, "the job ends", |job| job["status"] == "completed");
    assert_eq!(ended["output"]["result"], "taken up", "{ended}");
    let events = began_and_ended_once(&field, &job);
    assert_eq!(
        events.iter().filter(|kind| *kind == "session-recovering").count(),
        1,
        "{events:?}"
    );
    // The node that comes back ends what it left running, and says nothing more of the job.
    field.serve(A);
    eventually("nothing of it runs", || lives(&job).is_empty());
    eventually("nothing is known to run", || {
        field.count("SELECT count(*) FROM agent_processes") == 0
    });
    assert_eq!(field.events(&job), events);
    field.prove();
}

#[test]
fn a_node_that_was_frozen_past_its_lease_stops_its_agent_and_writes_nothing_more() {
    let Some(mut field) = field() else { return };
    let job = begun_at(&mut field, "hang");
    eventually("what it starts runs", || lives(&job).len() > 1);
    let first = lives(&job);
    field.serve(B);
    field.freeze(A);
    field.age(A);
    let completed = format!("SELECT count(*) FROM jobs WHERE job_id = '{job}' AND status = 'completed'");
    eventually("another node ends the job", || field.count(&completed) == 1);
    let events = began_and_ended_once(&field, &job);
    assert!(
        first.iter().all(|pid| lives(&job).contains(pid)),
        "one node ended the agent of another"
    );
    field.thaw(A);
    eventually("what the first node had started is gone", || lives(&job).is_empty());
    let session = field.session(A);
    let status = field.call(A, &session, 7, "job-status", json!({"jobId": job}));
    assert_eq!(status["job"]["status"], "completed", "{status}");
    eventually("nothing is known to run", || {
        field.count("SELECT count(*) FROM agent_processes") == 0
    });
    assert_eq!(field.events(&job), events, "the first node wrote about it");
    field.prove();
}

#[test]
fn a_node_that_stops_hands_its_jobs_on() {
    let Some(mut field) = field() else { return };
    let job = begun_at(&mut field, "work");
    field.serve(B);
    field.stop(A);
    assert!(lives(&job).is_empty() || field.events(&job).iter().any(|kind| kind == "session-recovering"));
    let ended = field.until_job(&job, "the job ends", |job| job["status"] == "completed");
    assert_eq!(ended["output"]["result"], "taken up", "{ended}");
    began_and_ended_once(&field, &job);
    eventually("nothing of it runs", || lives(&job).is_empty());
    field.prove();
}

#[test]
fn what_is_said_at_one_node_reaches_a_job_at_another_and_its_news_come_back() {
    let Some(mut field) = field() else { return };
    let told = begun_at(&mut field, "work");
    let session = field.session(A);
    let hanging = field.call(A, &session, 1, "start-task", json!({"agent": "mine", "prompt": "hang"}));
    let hanging = hanging["jobId"].as_str().unwrap().to_owned();
    field.until_job(&hanging, "it runs", |job| job["status"] == "running");
    field.serve(B);
    let session = field.session(B);
    let mut events = field.web(B).stream("GET", "/mcp", &session, &Value::Null);
    let called_back = field.call(B, &session, 1, "interrupt-task", json!({"jobId": hanging}));
    assert_ne!(called_back["status"], "failed", "{called_back}");
    let status = field.call(
        B,
        &session,
        2,
        "job-status",
        json!({"jobId": hanging, "wait_ms": 30_000}),
    );
    assert_eq!(status["job"]["status"], "cancelled", "{status}");
    std::fs::write(field.bench.work().join("go"), "").unwrap();
    let heard = events.until(|message| message["params"]["eventType"] == "task-complete");
    assert_eq!(heard["params"]["jobId"], told.as_str(), "{heard}");
    for job in [told, hanging] {
        began_and_ended_once(&field, &job);
        eventually("nothing of it runs", || lives(&job).is_empty());
    }
    field.prove();
}

#[test]
fn a_node_that_was_killed_takes_its_own_job_up_again_without_waiting_to_be_taken_for_dead() {
    let Some(mut field) = field() else { return };
    let job = begun_at(&mut field, "work");
    field.kill(A);
    let silent = "SELECT count(*) FROM processes WHERE seen_at < clock_timestamp() - interval '20 seconds'";
    field.serve(A);
    eventually("it is recovered", || {
        field.events(&job).iter().any(|kind| kind == "session-recovering")
    });
    assert_eq!(
        field.count(silent),
        0,
        "nobody was silent for long enough to be taken for dead"
    );
    let ended = field.until_job(&job, "the job ends", |job| job["status"] == "completed");
    assert_eq!(ended["output"]["result"], "taken up", "{ended}");
    began_and_ended_once(&field, &job);
    eventually("nothing of it runs", || lives(&job).is_empty());
    field.prove();
}
