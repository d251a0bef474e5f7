//! What every page has around its content, and how a page leaves.

use askama::Template;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use countersign_gateway::approval::ApprovalFilter;
use countersign_gateway::audit::RecordError;
use countersign_gateway::error::{ErrorCode, Refusal};

use super::Console;
use super::access::Reader;
use super::text::{self, Html};
use crate::limits::TEXT_CHARS_SHOWN;

/// The places of the console, in the order of the navigation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Queue,
    Activity,
    Jobs,
    Runs,
    Record,
    Sessions,
    Policy,
    Metrics,
}

impl Place {
    const ALL: &[(Self, &'static str, &'static str)] = &[
        (Self::Queue, "Queue", "/"),
        (Self::Activity, "Activity", "/activity"),
        (Self::Jobs, "Jobs", "/jobs"),
        (Self::Runs, "Runs", "/runs"),
        (Self::Record, "Record", "/record"),
        (Self::Sessions, "Sessions", "/sessions"),
        (Self::Policy, "Policy", "/policy"),
        // `/metrics` is what Prometheus reads.
        (Self::Metrics, "Metrics", "/numbers"),
    ];
}

/// One entry of the navigation.
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) path: &'static str,
    pub(super) is_here: bool,
    /// How many wait, where that is shown.
    pub(super) waiting: Option<usize>,
}

/// What stands around the content of a page.
pub(super) struct Frame {
    pub(super) entries: Vec<Entry>,
    pub(super) name: String,
    pub(super) role: &'static str,
    pub(super) waiting: usize,
    pub(super) version: &'static str,
    pub(super) about: String,
}

impl Frame {
    /// The frame of a page; `here` is none for pages that belong to no place.
    pub(super) async fn of(console: &Console, reader: &Reader, here: Option<Place>) -> Result<Self, RecordError> {
        let waiting = console.office.board.list(ApprovalFilter::open()).await?.len();
        let entries = Place::ALL.iter().map(|(place, name, path)| Entry {
            name,
            path,
            is_here: here == Some(*place),
            waiting: (*place == Place::Queue).then_some(waiting),
        });
        Ok(Self {
            entries: entries.collect(),
            name: reader.0.actor.id.clone(),
            role: reader.0.role.as_str(),
            waiting,
            version: env!("CARGO_PKG_VERSION"),
            about: format!(
                "mode {} · workspace {}",
                console.about.policy_mode, console.about.workspace
            ),
        })
    }
}

/// Scripts, styles and connections come from this server only, and nothing may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Text as a part of an address.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// A page, or a part of one.
pub(super) fn html(status: StatusCode, template: &impl Template) -> Response {
    let headers: [(HeaderName, HeaderValue); 3] = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/html; charset=utf-8"),
        ),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        // Without a referrer a browser would also hide from us that a form is our own.
        (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
    ];
    match template.render() {
        Ok(text) => (status, headers, text).into_response(),
        Err(error) => {
            tracing::error!(%error, "a page could not be made");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

#[derive(Template)]
#[template(path = "trouble.html")]
struct Trouble {
    title: &'static str,
    message: Html,
}

impl Trouble {
    /// The message may repeat what stood in an address.
    fn of(title: &'static str, message: &str) -> Self {
        let message = text::shown(message, TEXT_CHARS_SHOWN);
        Self { title, message }
    }
}

/// A page that says what went wrong.
pub(super) fn trouble(status: StatusCode, message: &str) -> Response {
    let title = match status {
        StatusCode::UNAUTHORIZED => "Not logged in",
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::NOT_FOUND => "Nothing here",
        StatusCode::SERVICE_UNAVAILABLE => "The record is away",
        _ => "That did not work",
    };
    html(status, &Trouble::of(title, message))
}

/// Why a page cannot be shown.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    message: String,
}

impl Failure {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        trouble(self.status, &self.message)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.code {
            ErrorCode::NotFound | ErrorCode::UnknownTool => StatusCode::NOT_FOUND,
            ErrorCode::Forbidden | ErrorCode::PolicyDenied | ErrorCode::ApprovalDenied => StatusCode::FORBIDDEN,
            ErrorCode::Conflict => StatusCode::CONFLICT,
            ErrorCode::AuditUnavailable | ErrorCode::QueueFull => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, refusal.message)
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stood_in_an_address_neither_acts_nor_hides_on_a_page_about_trouble() {
        let trouble = Trouble::of("Nothing here", "there is no job `<b>\u{202e}x`");
        let page = trouble.render().unwrap();
        assert!(page.contains("there is no job `"), "{page}");
        assert!(!page.contains("<b>") && !page.contains('\u{202e}'), "{page}");
    }
}
