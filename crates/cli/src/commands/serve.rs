//! `serve`: MCP over HTTP, health and readiness, REST and the console.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use anyhow::Context as _;
use countersign_gateway::approval::board::Board;
use countersign_gateway::audit::Pending;
use countersign_gateway::clock::Clock;
use countersign_gateway::ids::IdSource;
use countersign_gateway::run::manual::ManualRuns;
use countersign_gateway::session::Caller;
use countersign_gateway::session::login::Logins as _;
use countersign_gateway::spine::Gateway;
use countersign_server::http::{
    About, Anonymous, ConformanceFixtures, HttpLimits, HttpOptions, Readiness, Tls, serve_http,
};
use countersign_server::office::Office;
use countersign_store::Store;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::approvers::{self, Approvers};
use crate::cli::Serve;
use crate::config::{Flags, OperatorsFile, Settings, StandingParts};
use crate::delegations;
use crate::descriptors;
use crate::endpoints::Door;
use crate::github;
use crate::jobs::Workshop;
use crate::kin::Kin;
use crate::runs;
use crate::start::{self, BadUsage, Joined, Started};
use crate::whereabouts::Whereabouts;
use crate::wiring::{self, Launchpad};

pub(crate) fn run(flags: &Flags, serve: &Serve, launchpad: Launchpad) -> anyhow::Result<()> {
    let started = Started::load(flags)?;
    let _telemetry = started.telemetry()?;
    let fixtures = match serve.conformance_fixtures {
        true => ConformanceFixtures::Served,
        false => ConformanceFixtures::Absent,
    };
    start::warn(&started);
    start::warn_of_interpreters(&started);
    start::warn_of_workspace(&started);
    started.check_secrets(start::SERVERS_SECRETS)?;
    let settings = &started.settings;
    // Files that cannot be used are told of before anything is opened.
    let tls = certificate(settings)?;
    let callbacks = approvers::callback_token(settings, &started.surroundings)?;
    let github = github::Configured::read(settings, &started.surroundings)?;
    let template = runs::template(settings)?;
    descriptors::take_enough();
    start::runtime()?.block_on(async {
        let shutdown = start::stop_signal()?;
        let listen = &settings.listen;
        let listener = TcpListener::bind(listen).await.map_err(|error| {
            anyhow::anyhow!("cannot listen on `{listen}`: {error}; `--listen` names another address")
        })?;
        let address = listener.local_addr().context("cannot tell the address")?;
        let approvers = Approvers {
            here: Vec::new(),
            outside: approvers::outside(settings, &started.surroundings, Some(address))?,
        };
        let homes = launchpad.directories.homes.clone();
        let mut joined = started.joined(launchpad, approvers, settings.answer_within).await?;
        joined.delegations = Some(delegations::open(&started, &joined, Some(address)));
        if !address.ip().is_loopback() {
            require_authentication(settings, &joined.record)
                .map_err(|missing| BadUsage(format!("refusing to listen on {address}: {missing}")))?;
        }
        if let Some(warning) = read_along(address, tls.is_some()) {
            start::say(&format!("warning: {warning}"));
        }
        joined.reload.listen();
        start::settle_down();
        start::give_back_behind_long_answers(&joined.gateway);
        start::reload_at_hangup(&joined.reload)?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let _renewal = tls.clone().map(renew_on_hangup).transpose()?;
        let console = format!("{scheme}://{}", reachable(address));
        let counter = github.counter(&joined.record);
        let labels = counter.iter().map(github::Counter::tools).collect();
        let workshop = Workshop::open(&started, &joined, &homes, Door::Here(reachable(address)), labels).await;
        let webhooks = github.receive(counter.as_ref(), &joined, &workshop.runs, settings.run_time);
        let code = joined
            .record
            .issue(&Caller::person(&wiring::user()))
            .await
            .context("cannot make a login code")?;
        // Whoever reads the lines may at once look for the server.
        let _whereabouts = Whereabouts::tell(&settings.state_dir, &console)?;
        runs::look_after(&joined, &workshop, template);
        let workshop = Arc::new(workshop);
        let (at_work, gateway) = (Arc::clone(&workshop), Arc::clone(&joined.gateway));
        let (record, grace) = (Arc::clone(&joined.record), settings.shutdown_grace);
        let kept = Arc::clone(&record);
        let stops_at = Arc::new(OnceLock::new());
        let stopping = Arc::clone(&stops_at);
        let shutdown = async move {
            shutdown.await;
            let _ = stopping.set(Instant::now() + grace);
            // Agents at work are left to the next server, or to other nodes.
            at_work.close(&kept);
            gateway.stop_waiting();
            kept.stop_within(grace);
        };
        start::say(&format!("serving on {scheme}://{address}/"));
        start::say(&invitation(&console, &code));
        ask_again(&joined.board);
        let options = HttpOptions {
            callbacks,
            webhooks,
            ..options(&started, joined, &workshop, tls, fixtures)
        };
        let served = serve_http(listener, options, shutdown).await;
        // Agents end while calls do; what is left of the grace is theirs, and there is one grace for all.
        let left = || {
            stops_at
                .get()
                .map_or(grace, |at| at.saturating_duration_since(Instant::now()))
        };
        workshop.handed_on(&record, left()).await;
        workshop.settle(left()).await;
        served.context("cannot go on serving")
    })
}

/// The line that lets a person's browser in, once.
pub(crate) fn invitation(console: &str, code: &str) -> String {
    format!("console: {console}/#token={code}")
}

/// Where a browser on this machine reaches a server that listens here.
fn reachable(address: SocketAddr) -> SocketAddr {
    let here: IpAddr = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(here, address.port())
}

pub(crate) fn options(
    started: &Started,
    joined: Joined,
    workshop: &Workshop,
    tls: Option<Tls>,
    fixtures: ConformanceFixtures,
) -> HttpOptions {
    let settings = &started.settings;
    let limits = &settings.limits;
    let seal_key = wiring::seal_key(&joined.record);
    let kin = Kin {
        record: joined.record.clone(),
        credentials: joined.credentials.clone(),
    };
    let rules = OperatorsFile::new(StandingParts {
        flags: started.flags.clone(),
        surroundings: started.surroundings.clone(),
        record: joined.record.clone(),
        board: joined.board.clone(),
        reload: Some(joined.reload),
    });
    HttpOptions {
        about: About {
            workspace: settings
                .places
                .workspace_root
                .as_ref()
                .map_or_else(|| "any".into(), |root| root.display().to_string()),
            policy_mode: settings.approval.mode.clone(),
            state_directory: settings.state_dir.display().to_string(),
        },
        office: Some(Office {
            board: joined.board,
            records: joined.record.clone(),
            logins: joined.record.clone(),
            rules: Arc::new(rules),
            policy: Arc::new(joined.gateway.clone()),
            delegations: joined.delegations,
            jobs: workshop.desk.clone(),
            job_news: workshop.news.clone(),
            runs: ManualRuns {
                desk: workshop.runs.clone(),
                profiles: joined.gateway.clone(),
                time: settings.run_time,
            },
        }),
        readiness: Arc::new(AbleToWork {
            record: joined.record,
            gateway: joined.gateway.clone(),
        }),
        shutdown_grace: settings.shutdown_grace,
        ids: IdSource::random(),
        clock: Clock::system(),
        service: Arc::new(joined.gateway),
        sessions: joined.sessions,
        credentials: joined.credentials,
        kinship: Some(Arc::new(kin)),
        anonymous: match settings.anonymous_agents {
            true => Anonymous::AgentsOnLoopback,
            false => Anonymous::Nobody,
        },
        session_ttl: settings.session_ttl,
        limits: HttpLimits {
            body_bytes: limits.body_bytes,
            depth: limits.depth,
            requests_per_second: limits.requests_per_second,
            burst: limits.burst,
            sessions_max: limits.sessions_max,
            connections_max: descriptors::for_connections(),
        },
        tls,
        fixtures,
        callbacks: None,
        webhooks: None,
        seal_key,
        gauges: Arc::default(),
    }
}

/// Shows what is still open to the services that are asked: whoever showed it to them before may be gone.
fn ask_again(board: &Arc<Board>) {
    let board = board.clone();
    tokio::spawn(async move {
        if let Err(error) = board.ask_again().await {
            tracing::warn!(%error, "approvers could not be shown what is open");
        }
    });
}

fn certificate(settings: &Settings) -> anyhow::Result<Option<Tls>> {
    let Some(tls) = &settings.tls else {
        return Ok(None);
    };
    let loaded = Tls::load(&tls.cert, &tls.key).map_err(|error| {
        let reason = anyhow::Error::new(error);
        BadUsage(format!("`tls` cannot be used: {reason:#}"))
    })?;
    Ok(Some(loaded))
}

/// Reads the certificate again on SIGHUP, for as long as what this gives is kept. Trouble keeps the old one.
fn renew_on_hangup(tls: Tls) -> anyhow::Result<JoinSet<()>> {
    let mut hangups = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    let mut renewal = JoinSet::new();
    renewal.spawn(async move {
        while hangups.recv().await.is_some() {
            match tls.reload() {
                Ok(()) => tracing::info!("the certificate was read again; new connections get it"),
                Err(error) => {
                    let reason = format!("{:#}", anyhow::Error::new(error));
                    tracing::warn!(reason, "the certificate could not be read again; the old one stays");
                }
            }
        }
    });
    Ok(renewal)
}

/// What to say where others could read what is said to the server.
fn read_along(address: SocketAddr, is_encrypted: bool) -> Option<String> {
    (!address.ip().is_loopback() && !is_encrypted).then(|| {
        format!(
            "other machines reach {address} without TLS; unless something before it encrypts, set `tls: {{cert: …, key: \
             …}}`, or tokens can be read on the way"
        )
    })
}

/// Whoever can reach this machine could call tools otherwise.
fn require_authentication(settings: &Settings, record: &Store) -> Result<(), String> {
    if settings.anonymous_agents {
        return Err(
            "other machines could call tools without a token; set `auth: {anonymous_agents: false}`".to_owned(),
        );
    }
    let tokens = record.tokens().map_err(|error| error.to_string())?;
    if tokens.iter().all(|token| token.revoked_at.is_some()) {
        return Err("there is no token yet; make one with `countersign tokens create`".to_owned());
    }
    Ok(())
}

/// Ready while the record can be read and written, and commands can be confined.
struct AbleToWork {
    record: Arc<Store>,
    gateway: Arc<Gateway>,
}

impl Readiness for AbleToWork {
    fn check(&self) -> Pending<Result<(), String>> {
        let (record, gateway) = (self.record.clone(), self.gateway.clone());
        Box::pin(async move {
            let looked = tokio::task::spawn_blocking(move || {
                gateway.can_run()?;
                record.tail(u64::MAX - 1).map_err(|error| error.to_string())?;
                record.ready().map_err(|error| error.to_string())
            });
            match looked.await {
                Ok(looked) => looked,
                Err(_) => Err("the record's reader was stopped".to_owned()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_serves_other_machines_without_tls_is_warned() {
        for (address, is_encrypted, warns) in [
            ("127.0.0.1:7420", false, false),
            ("[::1]:7420", false, false),
            ("0.0.0.0:7420", false, true),
            ("192.0.2.1:7420", false, true),
            ("0.0.0.0:7420", true, false),
        ] {
            let warning = read_along(address.parse().unwrap(), is_encrypted);
            assert_eq!(warning.is_some(), warns, "{address}");
        }
    }
}
