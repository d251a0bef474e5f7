//! What can be typed after `policy` and `config`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Subcommand, Debug)]
pub(crate) enum Policy {
    /// Check a file and tell every problem.
    Check {
        /// A configuration, or a file that declares tools.
        file: PathBuf,
    },
    /// Tell what would happen to a call, by which rule, and which other rules took part.
    #[command(
        after_help = "Examples:\n  countersign policy explain --tool execute_command -- 'git log | head -3'\n  countersign policy explain --tool database.lifecycle --label run:ops -- action=delete"
    )]
    Explain(Explain),
    /// Show the policy in force.
    Show {
        /// What all sources together came to; it is so without this too.
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
    Trust {
        /// The file, read and agreed with.
        file: PathBuf,
    },
}
