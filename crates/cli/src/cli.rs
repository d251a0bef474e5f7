//! What can be typed: commands, options and their help.

mod db;
mod jobs;
mod runs;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::Flags;
pub(crate) use db::Db;
pub(crate) use jobs::{JobStart, Jobs};
pub(crate) use runs::{RunStart, Runs};

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
        after_help = "The exit code is the command's own; 124 on timeout, 126 when it was refused.\n\n\
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
    Completions { shell: clap_complete::Shell },
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
        #[arg(long, value_name = "N", default_value_t = 50)]
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
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout_ms: Option<u64>,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "FILE ARGS")]
    pub(crate) argv: Vec<String>,
}

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
        #[arg(long, value_name = "N", default_value_t = 1000)]
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

#[derive(Subcommand, Debug)]
pub(crate) enum Sessions {
    /// List sessions, the newest last; ended ones are kept as long as the record.
    #[command(after_help = "Example:\n  countersign sessions list --state initialized")]
    List {
        /// Only in this state.
        #[arg(long, value_name = "S", value_parser = ["created", "initialized", "closed", "expired"])]
        state: Option<String>,
        /// At most this many, the latest.
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: u32,
        /// Print a JSON array.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum Tokens {
    /// Make a token and print it, this once.
    #[command(after_help = "Example:\n  countersign tokens create --role agent --name laptop")]
    Create {
        /// What its bearer may do: agents call tools, operators besides decide, approvers decide, viewers read.
        #[arg(long, value_name = "R", value_parser = ["agent", "operator", "approver", "viewer"])]
        role: String,
        /// Whose it is, as the record will say.
        #[arg(long, value_name = "N")]
        name: String,
        /// The run whose agent it is for, and with which it ends; then it also ends by itself.
        #[arg(long, value_name = "RUN_ID")]
        run: Option<String>,
        /// How long a run's token lasts, such as `90m` or `24h`; a day when left out, a week at most.
        #[arg(long, value_name = "TIME", requires = "run")]
        expires_in: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print the address of the running server's console with a code that lets one browser in, once.
    Login {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// List tokens, revoked ones too, without the tokens themselves.
    List {
        /// Print a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token; running servers know within a second.
    Revoke {
        /// Its id or its name.
        #[arg(value_name = "ID|NAME")]
        token: String,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum Audit {
    /// Follow the record as it grows.
    Tail {
        /// Print one JSON object a line.
        #[arg(long)]
        json: bool,
        /// How many of the last events to begin with.
        #[arg(long, value_name = "N", default_value_t = 10)]
        last: u32,
        /// Print the last events and stop.
        #[arg(long)]
        no_follow: bool,
    },
    /// Find events, commands, calls or messages, oldest first.
    #[command(after_help = "Example:\n  countersign audit query --status rejected --limit 20")]
    Query(AuditQuery),
    /// Prove that nothing was changed, removed, reordered or cut off.
    Verify {
        /// An exported file; the live record when left out.
        file: Option<PathBuf>,
        /// What the witness was told (`audit.witness`), one checkpoint a line: the record must agree.
        #[arg(long, value_name = "FILE")]
        witness: Option<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write the record as JSON Lines that verify without a server.
    Export {
        /// Where to write; standard output when left out.
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
pub(crate) struct Metrics {
    /// From this time on [default: the beginning of the record].
    #[arg(long, value_name = "T")]
    pub(crate) from: Option<String>,
    /// Before this time [default: now].
    #[arg(long, value_name = "T")]
    pub(crate) to: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct AuditQuery {
    /// What to read: events as written, commands and how they ended, calls of tools, or messages.
    #[arg(long, value_enum, default_value = "command")]
    pub(crate) kind: AuditKind,
    /// At most this many, the latest.
    #[arg(long, value_name = "N", default_value_t = 1000)]
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

#[derive(Subcommand, Debug)]
pub(crate) enum Policy {
    /// Check a configuration file and tell every problem.
    Check { file: PathBuf },
    /// Tell what would happen to a call, by which rule, and which other rules took part.
    #[command(
        after_help = "Examples:\n  countersign policy explain --tool execute_command -- 'git log | head -3'\n  countersign policy explain --tool database.lifecycle --label run:ops -- action=delete"
    )]
    Explain(Explain),
    /// Show the policy in force.
    Show {
        /// What all sources together came to (the only view there is).
        #[arg(long)]
        effective: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// The tool it would be called through; with `execute_command` the one argument is the line.
    #[arg(long, value_name = "T", default_value = "execute_process")]
    pub(crate) tool: String,
    /// As if this agent called.
    #[arg(long, value_name = "K")]
    pub(crate) agent_key: Option<String>,
    /// As if in a run that this `run:*` label started.
    #[arg(long, value_name = "L")]
    pub(crate) label: Option<String>,
    /// As if in a run of this project.
    #[arg(long, value_name = "P")]
    pub(crate) project: Option<String>,
    /// As if in a run on this repository.
    #[arg(long, value_name = "R")]
    pub(crate) repository: Option<String>,
    /// As if in a run in this namespace.
    #[arg(long, value_name = "N")]
    pub(crate) namespace: Option<String>,
    /// The caller's role: agent or operator.
    #[arg(long, value_enum, default_value = "agent")]
    pub(crate) role: ExplainRole,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Where it would run.
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// The program and its arguments, or the line; for tools that run no commands their arguments, as
    /// NAME=VALUE or as one JSON object.
    #[arg(last = true, value_name = "FILE ARGS")]
    pub(crate) argv: Vec<String>,
}

/// The roles that call tools.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExplainRole {
    Agent,
    Operator,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Config {
    /// Write a commented configuration with every key and its default.
    Init {
        /// Overwrite a file that is there.
        #[arg(long)]
        force: bool,
    },
    /// Show every setting and where it came from.
    Show {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of the configuration file.
    Schema,
    /// Trust a project's file as it is now; a changed file is untrusted again.
    Trust { file: PathBuf },
}

#[derive(Args, Debug)]
pub(crate) struct Connect {
    /// The client.
    pub(crate) client: Client,
    /// Edit the client's file; otherwise it is only printed what belongs there.
    #[arg(long)]
    pub(crate) write: bool,
    /// For claude-code: let it ask before it uses its own shell, edits files or fetches pages, by a hook in its
    /// settings, instead of naming the server.
    #[arg(long, conflicts_with_all = ["http", "url", "no_token", "name", "force"])]
    pub(crate) governed: bool,
    /// Let the client reach a running server by HTTP instead of starting its own.
    #[arg(long)]
    pub(crate) http: bool,
    /// Where that server is; implies `--http` [default: where `serve` listens, path `/mcp`].
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// With `--http`: no token, for a server that takes agents without one.
    #[arg(long)]
    pub(crate) no_token: bool,
    /// What the client calls the server.
    #[arg(long, value_name = "NAME", default_value = "countersign")]
    pub(crate) name: String,
    /// The client's file for this user, or the one of the project in the current directory.
    #[arg(long, default_value = "user")]
    pub(crate) scope: Scope,
    /// With `--write`: replace an entry of that name that is not ours.
    #[arg(long, requires = "write")]
    pub(crate) force: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Client {
    ClaudeCode,
    ClaudeDesktop,
    Codex,
    Cursor,
    Vscode,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    User,
    Project,
}
