//! `doctor`: what this machine offers, what is missing, and what to do about it.

mod findings;
mod page;

use std::process::ExitCode;

use countersign_exec::probe;

use crate::config::Flags;
use crate::start::Started;
use crate::terminal::Page;
use findings::Findings;

pub(crate) fn run(flags: &Flags, json: bool) -> anyhow::Result<ExitCode> {
    // The probe forks, so it comes before anything that could start a thread.
    let probed = probe::probe();
    let started = Started::load(flags)?;
    let findings = Findings::of(&started, probed);
    let mut page = Page::stdout();
    if json {
        page.json(&findings.to_json())?;
    } else {
        page::print(&mut page, &findings)?;
    }
    page.flush()?;
    Ok(if findings.obstacles().is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
