//! The binary: reads what was typed, prepares what must come first, and hands over to a command.
#![forbid(unsafe_code)]

mod absent;
mod agents;
mod approvers;
mod cli;
mod commands;
mod control;

mod reload;
mod retention;
mod runs;
mod start;
mod whereabouts;
mod wiring;
mod witness;

mod config;
mod delegations;
mod descriptors;
mod edited;
mod endpoints;
mod github;
mod idle;
mod interpreters;
mod jobs;
mod kin;
mod policy;
mod private;
mod real;
mod signals;
mod telemetry;
mod terminal;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;
use countersign_exec::{SandboxExecutor, fsize};

use cli::{Cli, Command};
use start::{BadConfiguration, BadUsage};
use terminal::ReaderGone;
use wiring::{Launchpad, ZYGOTE};

const FAILED: u8 = 1;
const NOT_UNDERSTOOD: u8 = 2;

fn main() -> ExitCode {
    // No command of people, so neither help nor completions know it.
    if std::env::args_os().skip(1).eq([ZYGOTE]) {
        let Err(_nobody) = SandboxExecutor::be_zygote();
        start::say(&format!("countersign: `{ZYGOTE}` is for servers to start"));
        return ExitCode::from(NOT_UNDERSTOOD);
    }
    fsize::fail_instead_of_ending();
    let cli = match Cli::try_parse_from(typed()) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            let text = error.render().to_string();
            match text.trim_end().strip_prefix("error: ") {
                Some(problem) => start::say(&format!("countersign: {problem}")),
                // Nothing was typed, so this is the help.
                None => start::say(text.trim_end()),
            }
            if error.kind() == ErrorKind::UnknownArgument && forgets_dashes() {
                start::say("put `--` before the program, as in `countersign exec -- ls -l`");
            }
            return ExitCode::from(NOT_UNDERSTOOD);
        }
        // `--help` and `--version` come back as errors too.
        Err(help) => help.exit(),
    };
    match run(&cli) {
        Ok(code) => code,
        Err(error) if error.is::<ReaderGone>() => ExitCode::SUCCESS,
        Err(error) => {
            start::say(&format!("countersign: {error:#}"));
            let understood = !error.is::<BadConfiguration>() && !error.is::<BadUsage>();
            ExitCode::from(if understood { FAILED } else { NOT_UNDERSTOOD })
        }
    }
}

/// The command line, where `help COMMAND` is another way to write `COMMAND --help`.
fn typed() -> Vec<OsString> {
    let mut words: Vec<_> = std::env::args_os().collect();
    if words.get(1).is_some_and(|word| word == "help") {
        words.remove(1);
        words.push("--help".into());
    }
    words
}

/// Whether a program is to run, and nothing says where it begins.
fn forgets_dashes() -> bool {
    let typed: Vec<_> = std::env::args_os().skip(1).collect();
    typed.iter().any(|word| word == "exec") && !typed.iter().any(|word| word == "--")
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    let flags = cli.global.flags();
    if !cli.command.serves() {
        telemetry::logs();
    }
    match &cli.command {
        // Forked before anything else exists: small, single-threaded, without secrets.
        Command::Stdio => commands::stdio::run(&flags, Launchpad::prepare()?)?,
        Command::Exec(exec) => return commands::exec::run(&flags, exec, Launchpad::prepare()?),
        Command::Hook(hook) => return Ok(commands::hook::run(&flags, hook)),
        Command::Serve(serve) => {
            let launchpad = Launchpad::prepare()?;
            let listen = serve.listen.clone();
            commands::serve::run(&config::Flags { listen, ..flags }, serve, launchpad)?;
        }
        Command::Approvals(approvals) => return commands::approvals::run(&flags, approvals),
        Command::Approve(approve) => return commands::approvals::decide::approve(&flags, approve),
        Command::Deny(deny) => return commands::approvals::decide::deny(&flags, deny),
        Command::Jobs(jobs) => return commands::jobs::run(&flags, jobs),
        Command::Runs(runs) => return commands::runs::run(&flags, runs),
        Command::Sessions(sessions) => commands::sessions::run(&flags, sessions)?,
        Command::Tokens(tokens) => commands::tokens::run(&flags, tokens)?,
        Command::Audit(audit) => return commands::audit::run(&flags, audit),
        Command::Db(db) => commands::db::run(&flags, db)?,
        Command::Metrics(metrics) => commands::metrics::run(&flags, metrics)?,
        Command::Policy(policy) => commands::policy::run(&flags, policy)?,
        Command::Config(command) => commands::config::run(&flags, command)?,
        Command::Doctor { json } => return commands::doctor::run(&flags, *json),
        Command::Connect(connect) => commands::connect::run(&flags, connect)?,
        Command::Demo(demo) => return commands::demo::run(demo),
        Command::Completions { shell } => commands::completions::run(*shell)?,
    }
    Ok(ExitCode::SUCCESS)
}
