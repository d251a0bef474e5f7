//! The binary: reads what was typed, prepares what must come first, and hands over to a command.
#![forbid(unsafe_code)]

mod cli;
mod commands;

mod start;
mod wiring;

mod config;
mod policy;
mod private;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command};
use start::BadConfiguration;
use wiring::Launchpad;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(code) => code,
        Err(error) => {
            start::say(&format!("countersign: {error:#}"));
            ExitCode::from(if error.is::<BadConfiguration>() { 2 } else { 1 })
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    let flags = cli.global.flags();
    match &cli.command {
        // Forked before anything else exists: small, single-threaded, without secrets.
        Command::Stdio => commands::stdio::run(&flags, Launchpad::prepare()?)?,
        Command::Exec(exec) => return commands::exec::run(&flags, exec, Launchpad::prepare()?),
        Command::Serve(serve) => commands::serve::run(&config::Flags { listen: serve.listen.clone(), ..flags })?,
        _ => anyhow::bail!("not here yet"),
    }
    Ok(ExitCode::SUCCESS)
}
