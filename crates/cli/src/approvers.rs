//! From configured approvers to ones that can be asked.

use std::net::SocketAddr;
use std::sync::Arc;

use countersign_gateway::approval::Approver;
use countersign_gateway::approval::journal::Journal;
use countersign_integrations::approver::{HttpApprover, Options, PATIENCE_DEFAULT, Timing};
use countersign_integrations::http::{Dialer, Endpoint, Header};
use countersign_server::http::{APPROVER_CALLBACK, CallbackToken};

use crate::config::{HttpApproverSettings, Settings, Surroundings};
use crate::start::BadUsage;

/// Whom a process asks by itself.
#[derive(Default)]
pub(crate) struct Approvers {
    /// Whoever is right here.
    pub(crate) here: Vec<Arc<dyn Approver>>,
    /// Services of the operator's.
    pub(crate) outside: Vec<Options>,
}

impl Approvers {
    pub(crate) fn joined(self, journal: &Journal) -> Vec<Arc<dyn Approver>> {
        let dialer = Arc::new(Dialer::default());
        let outside = self.outside.into_iter().map(|options| {
            let approver = HttpApprover::new(options, dialer.clone(), journal.clone());
            Arc::new(approver) as Arc<dyn Approver>
        });
        self.here.into_iter().chain(outside).collect()
    }
}

/// The services that the configuration names. They call back at the address that we listen on, unless it
/// says where; a process that does not listen leaves that to the server beside it.
pub(crate) fn outside(
    settings: &Settings,
    surroundings: &Surroundings,
    listening: Option<SocketAddr>,
) -> Result<Vec<Options>, BadUsage> {
    let callback_url = format!("{}{APPROVER_CALLBACK}", base(settings, listening));
    let one = |approver: &HttpApproverSettings| -> Result<Options, String> {
        let mut headers = Vec::new();
        for (name, secret) in &approver.headers {
            let value = secret
                .read(surroundings)
                .map_err(|error| format!("`headers.{name}`: {error:#}"))?;
            headers.push(Header::new(name, &value).map_err(|error| error.to_string())?);
        }
        Ok(Options {
            name: approver.name.clone(),
            endpoint: Endpoint::parse(&approver.url).map_err(|error| format!("`url` {error}"))?,
            headers,
            timing: match approver.answers_later {
                true => Timing::Later {
                    callback_url: callback_url.clone(),
                    patience: approver.timeout,
                },
                false => Timing::AtOnce(approver.timeout.unwrap_or(PATIENCE_DEFAULT)),
            },
        })
    };
    let named = |approver: &HttpApproverSettings| {
        one(approver).map_err(|error| BadUsage(format!("approver `{}`: {error}", approver.name)))
    };
    settings.http_approvers.iter().map(named).collect()
}

/// Where services reach this server.
pub(crate) fn base(settings: &Settings, listening: Option<SocketAddr>) -> String {
    if let Some(url) = &settings.callback_url {
        return url.trim_end_matches('/').to_owned();
    }
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    match listening {
        Some(address) => format!("{scheme}://{address}"),
        None => format!("{scheme}://{}", settings.listen),
    }
}

/// What services call back with, where the configuration gives them something.
pub(crate) fn callback_token(
    settings: &Settings,
    surroundings: &Surroundings,
) -> Result<Option<CallbackToken>, BadUsage> {
    let Some(secret) = &settings.callback_token else {
        return Ok(None);
    };
    let wrong = |error: &dyn std::fmt::Display| BadUsage(format!("`callbacks.token`: {error}"));
    let token = secret
        .read(surroundings)
        .map_err(|error| wrong(&format_args!("{error:#}")))?;
    CallbackToken::new(&token).map(Some).map_err(|error| wrong(&error))
}
