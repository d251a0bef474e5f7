//! `stdio`: MCP on standard input and output. Standard output carries the protocol only.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use countersign_gateway::session::{Caller, Transport};
use countersign_server::stdio::{StdioOptions, serve_stdio};

use crate::approvers::{self, Approvers};
use crate::config::Flags;
use crate::delegations;
use crate::endpoints::Door;
use crate::github;
use crate::jobs::Workshop;
use crate::signals::Stop;
use crate::start::{self, Started};
use crate::wiring::{self, Launchpad};

/// A person who tries it would wait for ever.
const ON_A_TERMINAL: &str = "countersign: speaking MCP with whoever types here, one JSON message a line; clients start this by \
                             themselves, and `countersign connect CLIENT` tells them how";

/// How long the record may take to sign its end, beside the grace for everything before.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub(crate) fn run(flags: &Flags, launchpad: Launchpad) -> anyhow::Result<()> {
    let started = Started::load(flags)?;
    let _telemetry = started.telemetry()?;
    start::warn(&started);
    start::warn_of_interpreters(&started);
    start::warn_of_workspace(&started);
    started.check_secrets(&["github.token", "github.webhook_secret"])?;
    if std::io::stdin().is_terminal() {
        start::say(ON_A_TERMINAL);
    }
    let github = github::Configured::read(&started.settings, &started.surroundings)?;
    let options = StdioOptions {
        line_bytes_max: started.settings.limits.line_bytes,
        depth_max: started.settings.limits.depth,
        ..StdioOptions::standard()
    };
    start::runtime()?.block_on(async {
        // A client that goes without a word leaves a hangup.
        let mut stop = Stop::listen()?;
        let approvers = Approvers {
            here: Vec::new(),
            outside: approvers::outside(&started.settings, &started.surroundings, None)?,
        };
        let homes = launchpad.directories.homes.clone();
        let joined = started
            .joined(launchpad, approvers, started.settings.answer_within)
            .await?;
        delegations::open(&started, &joined, None);
        joined.reload.listen();
        start::settle_down();
        start::give_back_behind_long_answers(&joined.gateway);
        let door = Door::OfServer(started.settings.state_dir.clone());
        let labels = github.counter(&joined.record).map(|counter| counter.tools());
        let workshop = Workshop::open(&started, &joined, &homes, door, labels.into_iter().collect()).await;
        let caller = Caller::anonymous_agent(Transport::Stdio);
        let options = StdioOptions {
            seal_key: wiring::seal_key(&joined.record),
            ..options
        };
        let (record, grace) = (Arc::clone(&joined.record), started.settings.shutdown_grace);
        let stopped = async {
            let code = stop.next().await;
            record.stop_within(grace);
            code
        };
        let served = serve_stdio(Arc::new(joined.gateway), joined.sessions, caller, options, stopped).await;
        // What could be written by now is; only the chain's end is left to sign.
        record.stop_within(LAST_WORDS);
        workshop.leave(&started.settings).await;
        served.context("cannot go on serving")
    })
}
