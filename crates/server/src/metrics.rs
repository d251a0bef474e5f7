//! Numbers about this server, in the text that Prometheus reads.
//!
//! Labels come from closed sets: tools of the catalog, statuses, error codes, session states. What a
//! client makes up is counted under one name, so that nobody can fill our memory with labels.

mod gauges;
mod standing;

use std::time::{Duration, Instant};

use countersign_gateway::error::{ErrorCode, Refusal, Status};
use countersign_gateway::service::Answer;
use countersign_gateway::session::lifetime::SessionState;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

pub(crate) use gauges::Counted;
pub use gauges::Gauges;
pub(crate) use standing::Standing;

/// Upper bounds of a call's time, in seconds: from a bare `true` to the longest a call may take.
const SECONDS: [f64; 13] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0, 600.0,
];

pub(crate) struct Metrics {
    registry: Registry,
    calls: Family<CallLabels, Counter>,
    seconds: Family<ToolLabels, Histogram>,
    in_flight: Gauge,
    refused: Family<CodeLabels, Counter>,
    sessions: Family<StateLabels, Gauge>,
    requests: Family<StatusLabels, Counter>,
    pub(crate) standing: Standing,
}

/// A word of a closed set.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Word(std::borrow::Cow<'static, str>);

impl EncodeLabelValue for Word {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        EncodeLabelValue::encode(&&*self.0, encoder)
    }
}

impl From<&'static str> for Word {
    fn from(word: &'static str) -> Self {
        Self(word.into())
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct CallLabels {
    tool: Word,
    status: Word,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ToolLabels {
    tool: Word,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct CodeLabels {
    code: Word,
}

impl CodeLabels {
    fn of(code: ErrorCode) -> Self {
        let code = code.name().into();
        Self { code }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct StateLabels {
    state: Word,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct StatusLabels {
    status: u16,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::of(&Gauges::default())
    }
}

impl Metrics {
    /// The metrics of a server that counts in these.
    pub(crate) fn of(gauges: &Gauges) -> Self {
        let calls = Family::default();
        let seconds = Family::<ToolLabels, Histogram>::new_with_constructor(|| Histogram::new(SECONDS));
        let (in_flight, sessions, requests) = (Gauge::default(), Family::default(), Family::default());
        let refused = gauges.refused.clone();
        let mut registry = Registry::with_prefix("countersign");
        registry.register("calls", "tool calls that ended", calls.clone());
        let about = "time from a call's arrival to its answer";
        registry.register_with_unit("call", about, Unit::Seconds, seconds.clone());
        registry.register(
            "open_calls",
            "tool calls that have not been answered",
            in_flight.clone(),
        );
        registry.register("refused", "messages refused before they became calls", refused.clone());
        registry.register("sessions", "sessions the store knows, by state", sessions.clone());
        registry.register("http_requests", "HTTP requests answered", requests.clone());
        registry.register("connections", "open connections", gauges.connections.clone());
        let about = "responses that are streams of events";
        registry.register("streams", about, gauges.streams.clone());
        let standing = Standing::registered(&mut registry);
        let version = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "what is running", version);
        Self {
            registry,
            calls,
            seconds,
            in_flight,
            refused,
            sessions,
            requests,
            standing,
        }
    }

    /// The page.
    pub(crate) fn render(&self) -> String {
        let mut page = String::new();
        // Writing into memory cannot fail.
        let _ = encode(&mut page, &self.registry);
        page
    }

    pub(crate) fn call_began(&self) {
        self.in_flight.inc();
    }

    pub(crate) fn call_ended(&self, tool: &str, ended: Result<Status, ErrorCode>, took: Duration) {
        self.in_flight.dec();
        let status: Word = match ended {
            Ok(status) => status.as_str().into(),
            Err(code) => code.name().into(),
        };
        let tool = match ended {
            // Whoever may call nothing is refused before anybody looks for the tool.
            Err(ErrorCode::UnknownTool | ErrorCode::Forbidden) => "unknown".into(),
            Ok(_) | Err(_) => Word(tool.to_owned().into()),
        };
        let labels = ToolLabels { tool: tool.clone() };
        self.seconds.get_or_create(&labels).observe(took.as_secs_f64());
        self.calls.get_or_create(&CallLabels { tool, status }).inc();
    }

    /// What an answer is counted as. Counts how a command was confined, too, as its result tells.
    pub(crate) fn answered(&self, answer: &Answer) -> Status {
        self.standing.answered(&answer.structured);
        let told = answer.structured.get("status").and_then(serde_json::Value::as_str);
        let plain = if answer.is_error { Status::Failed } else { Status::Ok };
        told.and_then(Status::parse).unwrap_or(plain)
    }

    pub(crate) fn refused(&self, code: ErrorCode) {
        self.refused.get_or_create(&CodeLabels::of(code)).inc();
    }

    /// How many sessions stand at a state.
    pub(crate) fn sessions(&self, state: SessionState, count: usize) {
        let state = state.as_str().into();
        set(&self.sessions.get_or_create(&StateLabels { state }), count);
    }

    pub(crate) fn request_answered(&self, status: u16) {
        self.requests.get_or_create(&StatusLabels { status }).inc();
    }
}

/// A call that somebody waits for, open until this is dropped: whoever went away left it running.
pub(crate) struct Waiting<'a> {
    metrics: &'a Metrics,
    tool: &'a str,
    began: Instant,
    ended: Result<Status, ErrorCode>,
}

impl<'a> Waiting<'a> {
    pub(crate) fn of(metrics: &'a Metrics, tool: &'a str) -> Self {
        metrics.call_began();
        Self {
            metrics,
            tool,
            began: Instant::now(),
            ended: Ok(Status::Running),
        }
    }

    pub(crate) fn end(mut self, outcome: &Result<Answer, Refusal>) {
        self.ended = match outcome {
            Ok(answer) => Ok(self.metrics.answered(answer)),
            Err(refusal) => Err(refusal.code),
        };
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.metrics.call_ended(self.tool, self.ended, self.began.elapsed());
    }
}

fn set(gauge: &Gauge, count: usize) {
    gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nobody_looked_up_is_no_label() {
        let metrics = Metrics::default();
        for code in [ErrorCode::UnknownTool, ErrorCode::Forbidden] {
            metrics.call_began();
            metrics.call_ended("made up", Err(code), Duration::from_millis(1));
        }
        let page = metrics.render();
        assert!(!page.contains("made up"), "{page}");
        assert!(
            page.contains(r#"countersign_calls_total{tool="unknown",status="FORBIDDEN"} 1"#),
            "{page}"
        );
    }

    #[test]
    fn calls_are_counted_by_tool_and_status() {
        let metrics = Metrics::default();
        for status in [Status::Ok, Status::Ok, Status::Failed] {
            metrics.call_began();
            metrics.call_ended("execute_process", Ok(status), Duration::from_millis(3));
        }
        let page = metrics.render();
        for line in [
            r#"countersign_calls_total{tool="execute_process",status="ok"} 2"#,
            r#"countersign_calls_total{tool="execute_process",status="failed"} 1"#,
            r#"countersign_call_seconds_count{tool="execute_process"} 3"#,
            r#"countersign_call_seconds_bucket{le="0.0025",tool="execute_process"} 0"#,
            "countersign_open_calls 0",
        ] {
            assert!(page.lines().any(|it| it == line), "{line} is not in\n{page}");
        }
    }

    #[test]
    fn tools_that_do_not_exist_share_one_label() {
        let metrics = Metrics::default();
        for name in ["a", "b", "c"] {
            metrics.call_began();
            metrics.call_ended(name, Err(ErrorCode::UnknownTool), Duration::ZERO);
        }
        let page = metrics.render();
        let line = r#"countersign_calls_total{tool="unknown",status="UNKNOWN_TOOL"} 3"#;
        assert!(page.contains(line), "{page}");
    }

    #[test]
    fn the_page_shows_what_the_gauges_count() {
        let gauges = Gauges::default();
        let metrics = Metrics::of(&gauges);
        let (_first, second) = (gauges.connection(), gauges.connection());
        let stream = gauges.stream();
        metrics.refused(ErrorCode::Unauthenticated);
        drop(second);
        assert_eq!(
            (gauges.connections(), gauges.refused(ErrorCode::Unauthenticated)),
            (1, 1)
        );
        let page = metrics.render();
        for line in [
            "countersign_connections 1",
            "countersign_streams 1",
            r#"countersign_refused_total{code="UNAUTHENTICATED"} 1"#,
        ] {
            assert!(page.lines().any(|it| it == line), "{line} is not in\n{page}");
        }
        drop(stream);
    }

    #[test]
    fn sessions_are_shown_by_state() {
        let metrics = Metrics::default();
        metrics.sessions(SessionState::Initialized, 7);
        let page = metrics.render();
        assert!(
            page.contains(r#"countersign_sessions{state="initialized"} 7"#),
            "{page}"
        );
    }

    #[test]
    fn the_guides_name_metrics_as_they_are() {
        let metrics = Metrics::default();
        // Those with labels are on the page once they have counted something.
        metrics.call_began();
        metrics.call_ended("execute_process", Ok(Status::Ok), Duration::ZERO);
        metrics.refused(ErrorCode::Unauthenticated);
        metrics.sessions(SessionState::Initialized, 1);
        metrics.request_answered(200);
        let page = metrics.render();
        let known: Vec<String> = page
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
            .map(|(name, kind)| match kind {
                "counter" => format!("{name}_total"),
                _ => name.to_owned(),
            })
            .collect();
        let guides = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides");
        let mut named = 0;
        for guide in std::fs::read_dir(guides).expect("the guides").flatten() {
            let text = std::fs::read_to_string(guide.path()).expect("a guide");
            for rest in text.split("`countersign_").skip(1) {
                let name = rest.split(['`', '{', '=']).next().unwrap_or_default();
                // Levels of the log are named by crate, such as `countersign_store=debug`.
                if rest[name.len()..].starts_with('=') {
                    continue;
                }
                let name = format!("countersign_{name}");
                assert!(
                    known.contains(&name),
                    "{}: {name}, of {known:?}",
                    guide.path().display()
                );
                named += 1;
            }
        }
        assert!(named > 5, "the guides name metrics");
    }
}
