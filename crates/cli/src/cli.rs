//! What can be typed: commands, options and their help.

mod approvals;
mod audit;
mod connect;
mod db;
mod jobs;
mod policy;
mod runs;
mod tokens;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::Flags;
pub(crate) use approvals::{Approvals, Approve, Deny};
pub(crate) use audit::{Audit, AuditKind, AuditQuery, Metrics};
pub(crate) use connect::{Client, Connect, Scope};
pub(crate) use db::Db;
pub(crate) use jobs::{JobStart, Jobs};
pub(crate) use policy::{Config, Explain, ExplainRole, Policy};
pub(crate) use runs::{RunStart, Runs};
pub(crate) use tokens::{Sessions, Tokens};

/// Stands between AI agents and this machine: policy, approval, confinement, record.
#[derive(Parser, Debug)]
#[command(
    name = "countersign",
    version,
    propagate_version = true,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Configuration instead of the operator's file [env: COUNTERSIGN_CONFIG].
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the record and other state live [env: COUNTERSIGN_STATE_DIR].
    #[arg(long, global = true, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// PostgreSQL that several nodes share, instead of a file in the state directory [env: COUNTERSIGN_DATABASE].
    #[arg(long, global = true, value_name = "URL")]
    database: Option<String>,
}

impl Global {
    pub(crate) fn flags(&self) -> Flags {
        Flags {
            config: self.config.clone(),
            state_dir: self.state_dir.clone(),
            database: self.database.clone(),
            ..Flags::default()
        }
    }
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Speak MCP on standard input and output, for desktop clients.
    Stdio,
    /// Run the server: MCP over HTTP, REST, and the console for people.
    Serve(Serve),
    /// Run one command through policy, approval, sandbox and record.
    #[command(
        after_help = "The exit code is the command's own; 124 on timeout, 126 when it was refused, 127 when there is no such program, 130 after Ctrl-C.\n\n\
                            It reads what is piped into `exec` as it comes; where it may run twice (mode `on-failure`), that is read to its end \
                            first, and is UTF-8 of 8 MiB at most.\n\n\
                            Example:\n  countersign exec --timeout-ms 60000 -- git status --short"
    )]
    Exec(Exec),
    /// Show what waits for a person, and decide it.
    #[command(subcommand)]
    Approvals(Approvals),
    /// Approve what waits for a person; short for `approvals approve`.
    Approve(Approve),
    /// Deny what waits for a person; short for `approvals deny`.
    Deny(Deny),
    /// Give work to coding agents, and look after it.
    #[command(subcommand)]
    Jobs(Jobs),
    /// Set off the runs of agents for issues, and look after them.
    #[command(subcommand)]
    Runs(Runs),
    /// Answer an agent that asks by a hook before it uses a tool of its own.
    #[command(subcommand)]
    Hook(Hook),
    /// Show the sessions of clients.
    #[command(subcommand)]
    Sessions(Sessions),
    /// Make, list and revoke the tokens by which clients and people are known.
    #[command(subcommand)]
    Tokens(Tokens),
    /// Read, prove, export and prune the record.
    #[command(subcommand)]
    Audit(Audit),
    /// Look after the database: how it is, bring it up to date, move it to PostgreSQL.
    #[command(subcommand)]
    Db(Db),
    /// Sum up jobs, approvals and errors of a period, from the record.
    #[command(
        after_help = "T is a time such as `2026-11-15T10:00:00Z`, or how long ago it was, such as `24h` or `7d`.\n\n\
                            Example:\n  countersign metrics --from 24h"
    )]
    Metrics(Metrics),
    /// Check a policy, or ask what would happen, without running anything.
    #[command(subcommand)]
    Policy(Policy),
    /// Write, show, describe or trust configuration.
    #[command(subcommand)]
    Config(Config),
    /// Tell what this machine supports, and what to do about what is missing.
    Doctor {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print or write what an MCP client needs in its configuration to use this server.
    #[command(
        after_help = "Without --write nothing is changed. With it, everything else in the file stays as it is and a \
                            copy is kept next to it.\n\n\
                            Examples:\n  countersign connect claude-code\n  \
                            countersign --config policy.yaml connect codex --write\n  \
                            countersign connect vscode --scope project --http\n  \
                            countersign connect claude-code --governed --write"
    )]
    Connect(Connect),
    /// Show what this is within a minute: a server, an agent that asks for things, and you who decide.
    #[command(
        after_help = "Everything happens in a temporary directory on this machine, and nothing is left behind; no \
                            configuration of yours is read or changed."
    )]
    Demo(Demo),
    /// Print a completion script for a shell.
    #[command(after_help = "Example, for bash:\n  source <(countersign completions bash)")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// Whether it runs commands or answers clients; those begin to log once they are configured.
    pub(crate) fn serves(&self) -> bool {
        matches!(self, Self::Stdio | Self::Serve(_) | Self::Exec(_))
    }
}

#[derive(Subcommand, Debug)]
pub(crate) enum Hook {
    /// Read an event of Claude Code on standard input, and say whether the tool may be used.
    #[command(
        after_help = "`countersign connect claude-code --governed` writes the hook. Whatever goes wrong, the tool is \
                      not used (exit code 2)."
    )]
    ClaudeCode {
        /// How long to wait for a person; less than Claude Code waits for the hook.
        #[arg(long, allow_negative_numbers = true, value_name = "N", default_value_t = 50)]
        wait_seconds: u64,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Address to listen on [default: 127.0.0.1:7420].
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// Serve also what the protocol's conformance suite calls by name.
    #[arg(long, hide = true)]
    pub(crate) conformance_fixtures: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// Decide everything alike, without a person.
    #[arg(long, value_name = "HOW", value_enum)]
    pub(crate) auto: Option<DemoAnswer>,
    /// Open the console in a browser.
    #[arg(long)]
    pub(crate) open: bool,
    /// Print what happened as JSON, and nothing else.
    // Nothing else means no address of a console either, so nobody could answer.
    #[arg(long, requires = "auto")]
    pub(crate) json: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DemoAnswer {
    Approve,
    Deny,
}

#[derive(Args, Debug)]
pub(crate) struct Exec {
    /// Where to run; the workspace when left out.
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// Ends the command after this time.
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout_ms: Option<u64>,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "FILE ARGS")]
    pub(crate) argv: Vec<String>,
}
