//! What this process says about itself: logs on standard error, and traces to a collector.
//!
//! Logs are warnings, or what `COUNTERSIGN_LOG` asks for (`debug`, `countersign_store=trace`), as
//! lines for people or, with `COUNTERSIGN_LOG_FORMAT=json`, as one JSON object a line. Traces are one
//! span a call with one for each station it passed, sent by OTLP over HTTP.

mod lines;

use std::io::{self, BufRead as _, BufReader, IsTerminal as _, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::Context as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::start::{self, BadUsage};
use crate::terminal;
use lines::LogLines;

/// Where spans of calls are made; everything else stays out of the traces.
const SPANS: &str = "countersign_gateway::spine";
/// Whatever is asked for, these stay silent. The first logs whole answers of a cluster that it does not understand, as
/// warnings, and Secrets are among them. The others belong to the parser of shell lines, which logs those lines as they
/// were given. What went wrong is told without them by whoever asked.
const TELL_SECRETS: &[&str] = &["kube_client::client", "arithmetic", "expansion", "parse", "tokenize"];
/// How long a collector may take; spans wait in memory meanwhile, and the oldest are dropped first.
const COLLECTOR_PATIENCE: Duration = Duration::from_secs(5);
/// A collector's answer is a status and a few words.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Held as long as the process says anything; dropped, it sends the last spans.
#[must_use]
pub(crate) struct Telemetry(Option<SdkTracerProvider>);

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(provider) = self.0.take()
            && let Err(error) = provider.shutdown()
        {
            tracing::warn!(%error, "the last traces could not be sent");
        }
    }
}

/// Begins to log.
pub(crate) fn logs() {
    Registry::default().with(log_lines()).init();
}

/// Begins to log, and to send traces where a collector is configured.
pub(crate) fn begin(otlp_endpoint: Option<&str>) -> anyhow::Result<Telemetry> {
    let provider = otlp_endpoint.map(exporter).transpose()?;
    let spans = provider.as_ref().map(|provider| {
        let layer = tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("countersign"))
            .with_location(false)
            .with_threads(false);
        layer.with_filter(Targets::new().with_target(SPANS, LevelFilter::INFO))
    });
    Registry::default().with(log_lines()).with(spans).init();
    Ok(Telemetry(provider))
}

fn log_lines() -> Box<dyn Layer<Registry> + Send + Sync> {
    let wanted = std::env::var("COUNTERSIGN_LOG").unwrap_or_else(|_| "warn".to_owned());
    let filter: Targets = wanted.parse().unwrap_or_else(|error| {
        start::say(&format!(
            "warning: `COUNTERSIGN_LOG` is a level such as `info`, or levels of parts such as `countersign_store=debug`: \
             {error}; warnings are logged"
        ));
        Targets::new().with_default(LevelFilter::WARN)
    });
    let silent = TELL_SECRETS.iter().map(|target| (*target, LevelFilter::OFF));
    let filter = filter.with_targets(silent);
    let lines = tracing_subscriber::fmt::layer().with_writer(|| LogLines);
    match std::env::var("COUNTERSIGN_LOG_FORMAT").as_deref() {
        Ok("json") => return lines.json().flatten_event(true).with_filter(filter).boxed(),
        Ok("text" | "") | Err(_) => {}
        Ok(other) => start::say(&format!(
            "warning: `COUNTERSIGN_LOG_FORMAT` is `json` or `text`, not `{}`; text is logged",
            terminal::clean(other)
        )),
    }
    let colours = io::stderr().is_terminal() && terminal::wants_colour(|name| std::env::var_os(name));
    lines.with_ansi(colours).with_filter(filter).boxed()
}

fn exporter(endpoint: &str) -> anyhow::Result<SdkTracerProvider> {
    let collector = Collector::at(endpoint)?;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
        .with_http_client(collector)
        .build()
        .context("cannot send traces")?;
    let resource = Resource::builder()
        .with_service_name("countersign")
        .with_attribute(opentelemetry::KeyValue::new(
            "service.version",
            env!("CARGO_PKG_VERSION"),
        ))
        .build();
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource)
        .build())
}

/// A collector reached by plain HTTP. Spans are sent from a thread of their own, so this may block.
#[derive(Debug)]
struct Collector {
    /// `host:port`.
    authority: String,
}

impl Collector {
    fn at(endpoint: &str) -> Result<Self, BadUsage> {
        let Some(rest) = endpoint.strip_prefix("http://") else {
            let sentence = format!(
                "`telemetry.otlp_endpoint` is `{endpoint}`: traces are sent by plain http; let a collector on this machine pass them on"
            );
            return Err(BadUsage(sentence));
        };
        let host = rest.split('/').next().unwrap_or_default();
        let has_port = host
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        Ok(Self {
            authority: if has_port {
                host.to_owned()
            } else {
                format!("{host}:80")
            },
        })
    }

    fn post(&self, request: &Request<Bytes>) -> io::Result<Response<Bytes>> {
        let address = self.authority.to_socket_addrs()?.next();
        let address = address.ok_or_else(|| io::Error::other("the collector's name has no address"))?;
        let mut stream = TcpStream::connect_timeout(&address, COLLECTOR_PATIENCE)?;
        stream.set_read_timeout(Some(COLLECTOR_PATIENCE))?;
        stream.set_write_timeout(Some(COLLECTOR_PATIENCE))?;
        let path = request.uri().path();
        let mut head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n",
            self.authority
        );
        for (name, value) in request.headers() {
            if let Ok(value) = value.to_str() {
                head += &format!("{name}: {value}\r\n");
            }
        }
        head += &format!("content-length: {}\r\n\r\n", request.body().len());
        stream.write_all(head.as_bytes())?;
        stream.write_all(request.body())?;
        let mut answer = BufReader::new(stream.take(ANSWER_BYTES_MAX));
        let mut line = String::new();
        answer.read_line(&mut line)?;
        let status = line
            .split_ascii_whitespace()
            .nth(1)
            .and_then(|status| status.parse().ok());
        let status: u16 = status.ok_or_else(|| io::Error::other("the collector does not speak HTTP"))?;
        let response = Response::builder().status(status).body(Bytes::new());
        response.map_err(io::Error::other)
    }
}

#[async_trait::async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        Ok(self.post(&request)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_named_by_plain_http() {
        for (endpoint, authority) in [
            ("http://127.0.0.1:4318", Some("127.0.0.1:4318")),
            ("http://collector:4318/", Some("collector:4318")),
            ("http://collector", Some("collector:80")),
            ("http://[::1]:4318", Some("[::1]:4318")),
            ("https://collector:4318", None),
            ("collector:4318", None),
        ] {
            let collector = Collector::at(endpoint).ok();
            assert_eq!(collector.map(|it| it.authority).as_deref(), authority, "{endpoint}");
        }
    }
}
