//! What pages load beside their markup, built into the binary.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const ASSETS: &[(&str, &str, &str)] = &[
    ("console.css", CSS, include_str!("assets/console.css")),
    ("theme.js", SCRIPT, include_str!("assets/theme.js")),
    ("console.js", SCRIPT, include_str!("assets/console.js")),
    ("queue.js", SCRIPT, include_str!("assets/queue.js")),
    ("activity.js", SCRIPT, include_str!("assets/activity.js")),
    ("jobs.js", SCRIPT, include_str!("assets/jobs.js")),
    ("job.js", SCRIPT, include_str!("assets/job.js")),
    ("runs.js", SCRIPT, include_str!("assets/runs.js")),
    ("login.js", SCRIPT, include_str!("assets/login.js")),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

pub(super) async fn asset(Path(name): Path<String>) -> Response {
    match ASSETS.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, content)) => ([(header::CONTENT_TYPE, *kind)], *content).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
