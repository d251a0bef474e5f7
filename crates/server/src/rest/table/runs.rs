//! The routes of runs.

use super::super::asked::{Form, Parameter, Place};
use super::super::endpoint::{Access, Answer, Endpoint, Method};
use super::super::runs;
use super::{LIMIT, PLACE_MAX, query};

pub(in super::super) static ENDPOINTS: [Endpoint; 4] = [
    Endpoint {
        method: Method::Get,
        path: "/runs",
        name: "listRuns",
        summary: "The runs of agents for issues, the newest first.",
        access: Access::Readers,
        parameters: &[
            query("status", Form::Words(runs::statuses), "Only in these states."),
            query(
                "repository",
                Form::Id { chars_max: 140 },
                "Only of this repository, as `owner/name`.",
            ),
            query(
                "issue_number",
                Form::Whole {
                    least: 1,
                    most: PLACE_MAX,
                },
                "Only for this issue.",
            ),
            query(
                "pull_request_number",
                Form::Whole {
                    least: 1,
                    most: PLACE_MAX,
                },
                "Only for this pull request.",
            ),
            LIMIT,
        ],
        body: None,
        answers: &[(200, Answer::ListOf("Run"))],
        handler: |asked| Box::pin(runs::list(asked)),
    },
    Endpoint {
        method: Method::Post,
        path: "/runs",
        name: "startRun",
        summary: "Set a run off; it waits for its turn. Where one with the same label waits for the same \
                  issue already, that one is answered.",
        access: Access::Operators,
        parameters: &[],
        body: Some("RunOrder"),
        answers: &[(202, Answer::Json("Run"))],
        handler: |asked| Box::pin(runs::start(asked)),
    },
    Endpoint {
        method: Method::Get,
        path: "/runs/{id}",
        name: "showRun",
        summary: "One run with its clock, what it belongs to, its agent's session and what was asked in it.",
        access: Access::Readers,
        parameters: &[RUN],
        body: None,
        answers: &[(200, Answer::Json("RunTrace"))],
        handler: |asked| Box::pin(runs::show(asked)),
    },
    Endpoint {
        method: Method::Post,
        path: "/runs/{id}/cancel",
        name: "cancelRun",
        summary: "Call a run back, and its job and its tokens with it.",
        access: Access::Operators,
        parameters: &[RUN],
        body: Some("RunCancellation"),
        answers: &[(200, Answer::Json("Run"))],
        handler: |asked| Box::pin(runs::cancel(asked)),
    },
];

const RUN: Parameter = Parameter {
    name: "id",
    place: Place::Path,
    form: Form::Id { chars_max: 64 },
    about: "The run's `run_id`.",
};
