//! What there is: every route, who may take it, what it takes and what it answers.
//!
//! The only place to add one. Router, checks and document follow. Jobs and runs have pages of their own.

mod jobs;
mod runs;

use super::asked::{Form, Parameter, Place};
use super::endpoint::{Access, Answer, Endpoint, Method};
use super::{approvals, audit, commands, events, metrics, openapi, policy, sessions};
use crate::limits::LIST_MAX;

pub(super) static ENDPOINTS: [Endpoint; 19] = [
    Endpoint {
        method: Method::Get,
        path: "/approvals",
        name: "listApprovals",
        summary: "What waits for a person, the newest last.",
        access: Access::Readers,
        parameters: &[
            query(
                "state",
                Form::Words(approvals::states),
                "Only these states; `all` for every one, `pending` when left out.",
            ),
            query(
                "automatic",
                Form::Flag,
                "Only what the whitelist answered, or only what it did not.",
            ),
            LIMIT,
        ],
        body: None,
        answers: &[(200, Answer::ListOf("ApprovalRequest"))],
        handler: |asked| Box::pin(approvals::list(asked)),
    },
    Endpoint {
        method: Method::Get,
        path: "/approvals/{id}",
        name: "showApproval",
        summary: "One question and what became of it.",
        access: Access::Readers,
        parameters: &[APPROVAL],
        body: None,
        answers: &[(200, Answer::Json("ApprovalRequest"))],
        handler: |asked| Box::pin(approvals::show(asked)),
    },
    Endpoint {
        method: Method::Post,
        path: "/approvals/{id}/decision",
        name: "decideApproval",
        summary: "Approve or deny. Whoever comes late gets the decision that was first. Nobody decides what they asked for.",
        access: Access::Deciders,
        parameters: &[APPROVAL],
        body: Some("Decision"),
        answers: &[(200, Answer::Json("ApprovalRequest"))],
        handler: |asked| Box::pin(approvals::decide(asked)),
    },
    Endpoint {
        method: Method::Get,
        path: "/commands",
        name: "listCommands",
        summary: "The commands that ended last, the newest first.",
        access: Access::Readers,
        parameters: &[
            query("status", Form::Word(audit::command_statuses), "How they ended."),
            REQUEST_QUERY,
            CORRELATION,
            FROM,
            TO,
            AFTER,
            LIMIT,
        ],
        body: None,
        answers: &[(200, Answer::ListOf("CommandAuditRecord"))],
        handler: |asked| Box::pin(audit::recent(asked)),
    },
    Endpoint {
        method: Method::Post,
        path: "/commands",
        name: "runCommand",
        summary: "Run a command through policy, approval, sandbox and record. 202 while it runs or waits for a person; \
                  the same body again learns what became of it.",
        access: Access::Callers,
        parameters: &[query(
            "wait_ms",
            Form::Whole {
                least: 0,
                most: 600_000,
            },
            "Answer after this time even if the command goes on.",
        )],
        body: Some("CommandExecutionRequest"),
        answers: &[
            (200, Answer::Json("CommandExecutionResult")),
            (202, Answer::Json("CommandExecutionResult")),
        ],
        handler: |asked| Box::pin(commands::run(asked)),
    },
    Endpoint {
        method: Method::Get,
        path: "/commands/{request_id}",
        name: "showCommand",
        summary: "What became of a command of the caller's own.",
        access: Access::Callers,
        parameters: &[
            REQUEST,
            query(
                "wait_ms",
                Form::Whole {
                    least: 0,
                    most: 600_000,
                },
                "Wait this long for its end.",
            ),
            query(
                "stream",
                Form::Word(|| vec!["stdout", "stderr"]),
                "Which stream to page.",
            ),
            query(
                "offset",
                Form::Whole {
                    least: 0,
                    most: PLACE_MAX,
                },
                "First byte of the page.",
            ),
            query(
                "limit",
                Form::Whole {
                    least: 1,
                    most: 1 << 20,
                },
                "Bytes of the page.",
            ),
        ],
        body: None,
        answers: &[(200, Answer::Json("CommandExecutionResult"))],
        handler: |asked| Box::pin(commands::show(asked)),
    },
    Endpoint {
        method: Method::Post,
        path: "/commands/{request_id}/cancel",
        name: "cancelCommand",
        summary: "End a command of the caller's own, with everything it started.",
        access: Access::Callers,
        parameters: &[REQUEST],
        body: None,
        answers: &[(200, Answer::Json("CommandExecutionResult"))],
        handler: |asked| Box::pin(commands::cancel(asked)),
    },
    Endpoint {
        method: Method::Get,
        path: "/sessions",
        name: "listSessions",
        summary: "The sessions of clients, the newest last.",
        access: Access::Readers,
        parameters: &[
            query("state", Form::Word(sessions::states), "Only in this state."),
            LIMIT,
        ],
        body: None,
        answers: &[(200, Answer::ListOf("McpSession"))],
        handler: |asked| Box::pin(sessions::list(asked)),
    },
    Endpoint {
        method: Method::Get,
        path: "/tokens",
        name: "listTokens",
        summary: "The tokens by which clients and people are known, less their secrets.",
        access: Access::Readers,
        parameters: &[],
        body: None,
        answers: &[(200, Answer::ListOf("Token"))],
        handler: |asked| Box::pin(sessions::tokens(asked)),
    },
    Endpoint {
        method: Method::Get,
        path: "/audit/events",
        name: "listEvents",
        summary: "The events of the record.",
        access: Access::Readers,
        parameters: &[
            query("type", Form::Word(audit::types), "Only this kind."),
            query(
                "status",
                Form::Word(audit::event_statuses),
                "A command's status, or an approval's state.",
            ),
            REQUEST_QUERY,
            CORRELATION,
            FROM,
            TO,
            ORDER,
            AFTER,
            LIMIT,
        ],
        body: None,
        answers: &[(200, Answer::ListOf("Event"))],
        handler: |asked| Box::pin(audit::events(asked)),
    },
    Endpoint {
        method: Method::Get,
        path: "/audit/commands",
        name: "listCommandRecords",
        summary: "How every command ended, refused ones included.",
        access: Access::Readers,
        parameters: &[
            query("status", Form::Word(audit::command_statuses), "How they ended."),
            REQUEST_QUERY,
            CORRELATION,
            FROM,
            TO,
            ORDER,
            AFTER,
            LIMIT,
        ],
        body: None,
        answers: &[(200, Answer::ListOf("CommandAuditRecord"))],
        handler: |asked| Box::pin(audit::commands(asked)),
    },
    Endpoint {
        method: Method::Get,
        path: "/audit/invocations",
        name: "listInvocations",
        summary: "Every call of a tool, with what it was answered.",
        access: Access::Readers,
        parameters: &[
            query("status", Form::Word(|| vec!["ok", "error"]), "How they came out."),
            REQUEST_QUERY,
            CORRELATION,
            FROM,
            TO,
            ORDER,
            AFTER,
            LIMIT,
        ],
        body: None,
        answers: &[(200, Answer::ListOf("McpToolInvocation"))],
        handler: |asked| Box::pin(audit::invocations(asked)),
    },
    Endpoint {
        method: Method::Get,
        path: "/audit/envelopes",
        name: "listEnvelopes",
        summary: "Messages of clients that were refused, called a tool or began a session.",
        access: Access::Readers,
        parameters: &[
            query("status", Form::Word(|| vec!["accepted", "refused"]), "How they fared."),
            REQUEST_QUERY,
            CORRELATION,
            FROM,
            TO,
            ORDER,
            AFTER,
            LIMIT,
        ],
        body: None,
        answers: &[(200, Answer::ListOf("McpRequestEnvelope"))],
        handler: |asked| Box::pin(audit::envelopes(asked)),
    },
    Endpoint {
        method: Method::Get,
        path: "/audit/verify",
        name: "verifyRecord",
        summary: "Prove the chain. One walk answers all who ask meanwhile, and soon after while the record does not grow.",
        access: Access::Readers,
        parameters: &[],
        body: None,
        answers: &[(200, Answer::Json("Proof"))],
        handler: |asked| Box::pin(audit::verify(asked)),
    },
    Endpoint {
        method: Method::Get,
        path: "/audit/export",
        name: "exportRecord",
        summary: "The whole record as JSON Lines that `countersign audit verify FILE` proves without a server.",
        access: Access::Readers,
        parameters: &[],
        body: None,
        answers: &[(200, Answer::Lines)],
        handler: |asked| Box::pin(audit::export(asked)),
    },
    Endpoint {
        method: Method::Get,
        path: "/events",
        name: "followEvents",
        summary: "The record as it grows, as server-sent events; each has its place in the chain as its id.",
        access: Access::Readers,
        parameters: &[
            Parameter {
                name: "last-event-id",
                place: Place::Header,
                form: SEQ,
                about: "Go on behind this event; what a browser sends when it comes back.",
            },
            query(
                "after",
                SEQ,
                "The same, for a first request. From now on when neither is given.",
            ),
            query("type", Form::Words(audit::types), "Only these kinds."),
            CORRELATION,
        ],
        body: None,
        answers: &[(200, Answer::Events)],
        handler: |asked| Box::pin(events::follow(asked)),
    },
    Endpoint {
        method: Method::Get,
        path: "/policy",
        name: "showPolicy",
        summary: "The whole policy in force, under the digest that every decision's record names.",
        access: Access::Readers,
        parameters: &[],
        body: None,
        answers: &[(200, Answer::Json("Policy"))],
        handler: |asked| Box::pin(policy::show(asked)),
    },
    Endpoint {
        method: Method::Post,
        path: "/policy/explain",
        name: "explainPolicy",
        summary: "What would happen to a call, and by which rule, without running anything.",
        access: Access::Readers,
        parameters: &[],
        body: Some("SupposedCall"),
        answers: &[(200, Answer::Json("Explanation"))],
        handler: |asked| Box::pin(policy::explain(asked)),
    },
    Endpoint {
        method: Method::Get,
        path: "/metrics/summary",
        name: "summarizeMetrics",
        summary: "Jobs, approvals and errors of a period; the whole record when none is named.",
        access: Access::Readers,
        parameters: &[FROM, TO],
        body: None,
        answers: &[(200, Answer::Json("MetricsSummary"))],
        handler: |asked| Box::pin(metrics::summary(asked)),
    },
];

/// The document is one row more, since it is made of the others.
pub(super) static DOCUMENT: Endpoint = Endpoint {
    method: Method::Get,
    path: "/openapi.json",
    name: "describe",
    summary: "This document.",
    access: Access::Everybody,
    parameters: &[],
    body: None,
    answers: &[(200, Answer::Json("Document"))],
    handler: |asked| Box::pin(async move { Ok(openapi::answer(asked.api.takes_callbacks, asked.api.takes_webhooks)) }),
};

/// Every row.
pub(super) fn all() -> impl Iterator<Item = &'static Endpoint> {
    ENDPOINTS
        .iter()
        .chain(&jobs::ENDPOINTS)
        .chain(&runs::ENDPOINTS)
        .chain([&DOCUMENT])
}

/// The largest place that a store can count to.
const PLACE_MAX: u64 = i64::MAX as u64;
const SEQ: Form = Form::Whole {
    least: 0,
    most: PLACE_MAX,
};

const fn query(name: &'static str, form: Form, about: &'static str) -> Parameter {
    Parameter {
        name,
        place: Place::Query,
        form,
        about,
    }
}

const APPROVAL: Parameter = Parameter {
    name: "id",
    place: Place::Path,
    form: Form::Text { chars_max: 64 },
    about: "Its `requestId`, or the beginning of it that no other has.",
};
const REQUEST: Parameter = Parameter {
    name: "request_id",
    place: Place::Path,
    form: Form::Id { chars_max: 128 },
    about: "The command's `request_id`.",
};
const REQUEST_QUERY: Parameter = query("request_id", Form::Text { chars_max: 256 }, "Only of this request.");
const CORRELATION: Parameter = query(
    "correlation_id",
    Form::Text { chars_max: 128 },
    "Only what belongs to the same call.",
);
const FROM: Parameter = query(
    "from",
    Form::Moment,
    "From this time on: RFC 3339, or how long ago, such as `24h`.",
);
const TO: Parameter = query("to", Form::Moment, "Before this time.");
const ORDER: Parameter = query(
    "order",
    Form::Word(audit::orders),
    "Which come first; the oldest when left out.",
);
const AFTER: Parameter = query("after", SEQ, "What `next` of the page before said.");
const LIMIT: Parameter = query(
    "limit",
    Form::Whole {
        least: 1,
        most: LIST_MAX,
    },
    "At most so many; 100 when left out.",
);
