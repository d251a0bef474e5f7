//! `policy`: what would happen, by which rule, and what is in force. Nothing runs here.

mod check;
mod explain;
mod show;
mod tool;

pub(crate) use self::check::check;
use crate::cli::Policy;
use crate::config::Flags;

pub(crate) fn run(flags: &Flags, policy: &Policy) -> anyhow::Result<()> {
    match policy {
        Policy::Check { file } => check::run(flags, file),
        Policy::Explain(asked) => explain::run(flags, asked),
        // There is one view; `--effective` says so in words.
        Policy::Show { effective: _, json } => show::run(flags, *json),
    }
}
