//! The routes of agents' jobs.

use super::super::asked::{Form, Parameter, Place};
use super::super::endpoint::{Access, Answer, Endpoint, Method};
use super::super::jobs;
use super::{AFTER, LIMIT, SEQ, query};

pub(in super::super) static ENDPOINTS: [Endpoint; 7] = [
    Endpoint {
        method: Method::Get,
        path: "/jobs",
        name: "listJobs",
        summary: "The latest jobs of agents, the newest last. An agent sees its own.",
        access: Access::Everybody,
        parameters: &[
            query("status", Form::Words(jobs::statuses), "Only in these states."),
            query(
                "owner",
                Form::Id { chars_max: 128 },
                "Only what this credential started.",
            ),
            LIMIT,
        ],
        body: None,
        answers: &[(200, Answer::ListOf("Job"))],
        handler: |asked| Box::pin(jobs::list(asked)),
    },
    Endpoint {
        method: Method::Post,
        path: "/jobs",
        name: "startJob",
        summary: "Give an agent a task, as `start-task` takes it. A `status` of `pending` waits for a person; the same body \
                  again learns what became of it.",
        access: Access::Callers,
        parameters: &[query(
            "wait_ms",
            Form::Whole {
                least: 0,
                most: 600_000,
            },
            "Answer after this time even if a person still thinks.",
        )],
        body: Some("Task"),
        answers: &[(202, Answer::Json("Accepted"))],
        handler: |asked| Box::pin(jobs::start(asked)),
    },
    Endpoint {
        method: Method::Get,
        path: "/jobs/{id}",
        name: "showJob",
        summary: "One job with its session, its metrics, and the tokens and the cost of its conversation.",
        access: Access::Everybody,
        parameters: &[JOB],
        body: None,
        answers: &[(200, Answer::Json("WholeJob"))],
        handler: |asked| Box::pin(jobs::show(asked)),
    },
    Endpoint {
        method: Method::Get,
        path: "/jobs/{id}/events",
        name: "listJobEvents",
        summary: "What happened in a job, oldest first. Asked for as `text/event-stream`, all of it as it comes until the \
                  job has ended.",
        access: Access::Everybody,
        parameters: &[
            JOB,
            Parameter {
                name: "last-event-id",
                place: Place::Header,
                form: SEQ,
                about: "Go on behind this event of a stream; what a browser sends when it comes back.",
            },
            AFTER,
            LIMIT,
        ],
        body: None,
        answers: &[(200, Answer::ListOrEvents("JobEvent")), (204, Answer::Nothing)],
        handler: |asked| Box::pin(jobs::events(asked)),
    },
    Endpoint {
        method: Method::Post,
        path: "/jobs/{id}/messages",
        name: "messageJob",
        summary: "Say something to a job's agent: into the turn that runs, or as the next job.",
        access: Access::Callers,
        parameters: &[JOB],
        body: Some("Message"),
        answers: &[(202, Answer::Json("Accepted"))],
        handler: |asked| Box::pin(jobs::send(asked)),
    },
    Endpoint {
        method: Method::Post,
        path: "/jobs/{id}/interrupt",
        name: "interruptJob",
        summary: "Call a job back: its turn ends, with everything that it started.",
        access: Access::Callers,
        parameters: &[JOB],
        body: None,
        answers: &[(202, Answer::Json("Accepted"))],
        handler: |asked| Box::pin(jobs::interrupt(asked)),
    },
    Endpoint {
        method: Method::Get,
        path: "/processes",
        name: "listProcesses",
        summary: "The processes that agents run in.",
        access: Access::Readers,
        parameters: &[],
        body: None,
        answers: &[(200, Answer::ListOf("AgentProcess"))],
        handler: |asked| Box::pin(jobs::processes(asked)),
    },
];

const JOB: Parameter = Parameter {
    name: "id",
    place: Place::Path,
    form: Form::Id { chars_max: 64 },
    about: "The job's `jobId`.",
};
