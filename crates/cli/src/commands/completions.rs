//! `completions`: the script that makes a shell know our words.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::terminal::{Page, told};

pub(crate) fn run(shell: Shell) -> anyhow::Result<()> {
    // Into memory first: the generator does not survive a reader that goes away.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "countersign", &mut script);
    let mut page = Page::stdout();
    told(page.raw().write_all(&script))?;
    page.flush()
}
