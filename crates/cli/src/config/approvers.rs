//! Approvers over HTTP as configured, and what must hold between them and the callback routes.

use std::time::Duration;

use countersign_integrations::http::{BadHeader, Endpoint, Header};
use serde_json::Value as Json;

use super::merge::Effective;
use super::origin::{Problem, Warning};
use super::secret::Secret;
use super::shape::Faults;
use super::tree::Node;

/// One approver of type `http`.
#[derive(Clone, Debug)]
pub(crate) struct HttpApproverSettings {
    pub(crate) name: String,
    pub(crate) url: String,
    /// It answers later, by a callback.
    pub(crate) answers_later: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) headers: Vec<(String, Secret)>,
}

pub(super) fn read(effective: &Effective) -> Vec<HttpApproverSettings> {
    listed(effective)
        .map(|it| HttpApproverSettings {
            name: text(it, "name").to_owned(),
            url: text(it, "url").to_owned(),
            answers_later: it["async"] == true,
            timeout: it["timeout_ms"].as_u64().map(Duration::from_millis),
            headers: it["headers"]
                .as_object()
                .into_iter()
                .flatten()
                .filter_map(|(name, secret)| Some((name.clone(), Secret::of(secret)?)))
                .collect(),
        })
        .collect()
}

/// What one file can say wrong about an approver, beyond shapes.
pub(super) fn examine(approver: &Node, faults: &mut Faults) {
    let is_http = approver.get("type").and_then(Node::text) == Some("http");
    if !is_http {
        for pair in approver
            .pairs()
            .iter()
            .filter(|it| !matches!(&*it.name, "name" | "type"))
        {
            let message = format!("`approvers.{}` is for an approver of type `http`", pair.name);
            faults.push((pair.at, message));
        }
        return;
    }
    match approver.get("url") {
        None => faults.push((approver.at, "an approver of type `http` needs `url`".to_owned())),
        Some(url) => {
            if let Err(error) = Endpoint::parse(url.text().unwrap_or_default()) {
                faults.push((url.at, format!("`approvers.url` {error}")));
            }
        }
    }
    let mut known: Vec<String> = Vec::new();
    for pair in approver.get("headers").map_or(&[][..], Node::pairs) {
        let trouble = match Header::name(&pair.name) {
            Err(error @ (BadHeader::Name(_) | BadHeader::Ours(_) | BadHeader::Value(_))) => Some(error.to_string()),
            Ok(name) if known.iter().any(|it| it == name.as_str()) => Some(format!("`{name}` is given twice")),
            Ok(name) => {
                known.push(name.to_string());
                None
            }
        };
        if let Some(trouble) = trouble {
            faults.push((pair.at, format!("`approvers.headers`: {trouble}")));
        }
    }
}

/// What holds between the approvers and the rest, once all sources have spoken.
pub(super) fn settle(effective: &Effective, problems: &mut Vec<Problem>, warnings: &mut Vec<Warning>) {
    let origin = &effective.held("approvers").origin;
    let mut problem = |message: String| {
        problems.push(Problem {
            origin: origin.clone(),
            message,
        });
    };
    for approver in listed(effective) {
        let name = text(approver, "name");
        let open = Endpoint::parse(text(approver, "url")).is_ok_and(|it| it.is_open_to_others());
        if open {
            let reason =
                format!("`{name}` is asked by plain http; others can read the questions and change the answers");
            warnings.push(Warning {
                origin: origin.clone(),
                key: "approvers".to_owned(),
                reason,
            });
        }
        if approver["async"] != true {
            continue;
        }
        if effective.value("callbacks.token").is_null() {
            problem(format!(
                "`{name}` answers later, which needs `callbacks: {{token: …}}` or `COUNTERSIGN_CALLBACK_TOKEN`"
            ));
        }
        if effective.value("callbacks.url").is_null() && is_everywhere(effective) {
            problem(format!(
                "`{name}` answers later and cannot call `{}`; say where it reaches this server: `callbacks: {{url: …}}`",
                effective.value("listen").as_str().unwrap_or_default()
            ));
        }
    }
}

/// Whether `listen` names no address that somebody could call.
fn is_everywhere(effective: &Effective) -> bool {
    let listen = effective.value("listen").as_str().unwrap_or_default();
    listen
        .parse::<std::net::SocketAddr>()
        .is_ok_and(|it| it.ip().is_unspecified())
}

fn listed(effective: &Effective) -> impl Iterator<Item = &Json> {
    let all = effective.value("approvers").as_array().map_or(&[][..], Vec::as_slice);
    all.iter().filter(|it| it["type"] == "http")
}

fn text<'j>(approver: &'j Json, name: &str) -> &'j str {
    approver[name].as_str().unwrap_or_default()
}
