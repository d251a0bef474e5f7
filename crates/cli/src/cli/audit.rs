//! What can be typed after `audit` and `metrics`: the record, and what it comes to.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use countersign_gateway::audit::summary::Period;
use countersign_gateway::clock::Timestamp;

use crate::start::BadUsage;

#[derive(Subcommand, Debug)]
pub(crate) enum Audit {
    /// Follow the record as it grows.
    Tail {
        /// Print one JSON object a line.
        #[arg(long)]
        json: bool,
        /// How many of the last events to begin with.
        #[arg(long, allow_negative_numbers = true, value_name = "N", default_value_t = 10)]
        last: u32,
        /// Print the last events and stop.
        #[arg(long)]
        no_follow: bool,
    },
    /// Find events, commands, calls or messages, oldest first.
    #[command(after_help = "Example:\n  countersign audit query --status rejected --from 24h")]
    Query(AuditQuery),
    /// Prove that nothing was changed, removed, reordered or cut off.
    Verify {
        /// An exported file; the live record when left out.
        file: Option<PathBuf>,
        /// What the witness was told (`audit.witness`), one checkpoint a line: the record must agree.
        #[arg(long, value_name = "FILE")]
        witness: Option<PathBuf>,
        /// The public key that must have signed it. Without, a file's key is compared with the state directory's.
        #[arg(long, value_name = "HEX")]
        key: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write the record as JSON Lines that verify without a server.
    Export {
        /// Where to write; standard output when left out, or `-`.
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Remove old rows behind a signed checkpoint; the rest still verifies.
    Prune {
        /// Everything before this time, such as `2026-11-15T10:00:00Z`.
        #[arg(long, value_name = "T")]
        before: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Debug)]
pub(crate) struct AuditQuery {
    /// What to read: events as written, commands and how they ended, calls of tools, or messages.
    #[arg(long, value_enum, default_value = "command")]
    pub(crate) kind: AuditKind,
    /// At most this many, the latest.
    #[arg(long, allow_negative_numbers = true, value_name = "N", default_value_t = 1000)]
    pub(crate) limit: u32,
    /// Only with this status: ok, rejected, timeout or failed; for events also an approval's state, for
    /// invocations ok or error, for envelopes accepted or refused.
    #[arg(long, value_name = "S")]
    pub(crate) status: Option<String>,
    /// Only of this request, by its `request_id` or, for calls and messages, by the client's own id.
    #[arg(long, value_name = "R")]
    pub(crate) request_id: Option<String>,
    /// Only of this call.
    #[arg(long, value_name = "C")]
    pub(crate) correlation_id: Option<String>,
    #[command(flatten)]
    pub(crate) between: Between,
    /// Print a JSON array.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AuditKind {
    Event,
    Command,
    Invocation,
    Envelope,
}

#[derive(Args, Debug)]
pub(crate) struct Between {
    /// From this time on, such as `2026-11-15T10:00:00Z` or `24h` ago [default: the beginning of the record].
    #[arg(long, value_name = "T")]
    from: Option<String>,
    /// Before this time [default: now].
    #[arg(long, value_name = "T")]
    to: Option<String>,
}

impl Between {
    pub(crate) fn period(&self, now: Timestamp) -> Result<Period, BadUsage> {
        let moment = |name: &str, text: &Option<String>| {
            let parsed = text.as_deref().map(|text| Timestamp::parse_or_ago(text, now));
            parsed
                .transpose()
                .map_err(|error| BadUsage(format!("`--{name}`: {error}")))
        };
        let (from, to) = (moment("from", &self.from)?, moment("to", &self.to)?);
        // Who asks a server may have a clock of their own; whoever types it here has ours.
        if let Some(from) = from.filter(|from| now < *from) {
            return Err(BadUsage(format!(
                "the period begins at {from}, which is still to come; name a time that has passed"
            )));
        }
        Period::between(from, to).map_err(|error| BadUsage(error.to_string()))
    }
}

#[derive(Args, Debug)]
pub(crate) struct Metrics {
    #[command(flatten)]
    pub(crate) between: Between,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
