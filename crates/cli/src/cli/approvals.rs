//! What can be typed to decide: after `approvals`, `approve` and `deny`.

use clap::{Args, Subcommand};

#[derive(Subcommand, Debug)]
pub(crate) enum Approvals {
    /// List what waits for a decision, the newest last.
    #[command(after_help = "Example:\n  countersign approvals list --all --status denied")]
    List {
        /// What was decided too.
        #[arg(long)]
        all: bool,
        /// Only with this status, or in this state.
        #[arg(long, value_name = "S", value_parser = ["pending", "approved", "denied", "auto-approved", "applied",
            "failed", "expired", "withdrawn"])]
        status: Option<String>,
        /// At most this many, the latest.
        #[arg(long, allow_negative_numbers = true, value_name = "N", default_value_t = 1000)]
        limit: u32,
        /// Print a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Show one question whole: what will run, where, and why it is asked.
    Show {
        /// Its id, or as much of the beginning as names it.
        id: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Watch questions come in and answer them with single keys.
    #[command(
        after_help = "Keys: a approve, A approve and allow from now on (shows the rule first), d deny (asks for a \
                      reason), j/k or arrows choose, q quit.\n\
                      Where standard output is no terminal, one line per question is printed."
    )]
    Watch,
    /// Approve one question.
    Approve(Approve),
    /// Deny one question.
    Deny(Deny),
}

#[derive(Args, Debug)]
pub(crate) struct Approve {
    /// Its id, or as much of the beginning as names it.
    pub(crate) id: String,
    /// Why, for the record.
    #[arg(long, value_name = "R")]
    pub(crate) reason: Option<String>,
    /// Let the very same command run unasked from now on: shows the rule, and writes it into the operator's
    /// file if you agree.
    #[arg(long, conflicts_with_all = ["option", "custom"])]
    pub(crate) always: bool,
    /// With `--always`: write the rule without asking.
    #[arg(long, requires = "always")]
    pub(crate) yes: bool,
    /// Answers a question with one of its options.
    #[arg(long, value_name = "TEXT", conflicts_with = "custom")]
    pub(crate) option: Option<String>,
    /// Answers a question in words of your own, where it allows that.
    #[arg(long, value_name = "TEXT")]
    pub(crate) custom: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Deny {
    /// Its id, or as much of the beginning as names it.
    pub(crate) id: String,
    /// Why; the agent is told.
    #[arg(long, value_name = "R")]
    pub(crate) reason: String,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
