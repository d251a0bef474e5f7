//! `audit tail`: the record as it grows, one line per event.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::Context as _;
use countersign_gateway::audit::reading::{Filter, Pick};
use countersign_gateway::audit::row::Row;
use tokio::io::Interest;
use tokio::net::unix::pipe;

use super::{Form, Reading, summary};
use crate::config::Flags;
use crate::start;
use crate::terminal::Page;

/// How long a new event may wait to be seen.
const POLL: Duration = Duration::from_millis(250);

/// When to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Until {
    Now,
    Stopped,
}

pub(super) fn run(flags: &Flags, form: Form, last: usize, until: Until) -> anyhow::Result<()> {
    let record = Reading::open(flags)?;
    let mut page = Page::stdout();
    let recent = Filter {
        limit: last.max(1),
        pick: Pick::Newest,
        ..Filter::everything()
    };
    let recent = record.query_events(&recent)?;
    let mut after = recent.last().map_or(0, |row| row.place);
    // One row is read even when none is wanted: it says where following begins.
    print(&mut page, &recent[recent.len() - recent.len().min(last)..], form)?;
    if until == Until::Now {
        return Ok(());
    }
    start::runtime()?.block_on(async {
        let mut reader = Reader::watch();
        loop {
            let rows = record.tail(after)?;
            if let Some(row) = rows.last() {
                after = row.place;
                print(&mut page, &rows, form)?;
            } else if reader.gone_within(POLL).await {
                return Ok(());
            }
        }
    })
}

fn print(page: &mut Page, rows: &[Row], form: Form) -> anyhow::Result<()> {
    for row in rows {
        match form {
            Form::Text => page.row(&summary::cells(row), &summary::WIDTHS)?,
            Form::Json => page.json_line(
                row.to_json()
                    .with_context(|| format!("the payload of row {} is not JSON", row.seq))?,
            )?,
        }
    }
    page.flush()
}

/// Whoever reads our standard output. A pipe tells when its reader has gone; without asking we would
/// notice only at the next event, which may never come.
pub(crate) struct Reader(Option<pipe::Sender>);

impl Reader {
    pub(crate) fn watch() -> Self {
        let watched = || -> io::Result<_> {
            let stdout = io::stdout().as_fd().try_clone_to_owned()?;
            // Unchecked, since checking would make the shared descriptor non-blocking; it is only watched.
            pipe::Sender::from_file_unchecked(File::from(stdout))
        };
        // A file cannot be watched, and has no reader that goes away.
        Self(watched().ok())
    }

    pub(crate) async fn gone_within(&mut self, time: Duration) -> bool {
        match &self.0 {
            Some(stdout) => tokio::time::timeout(time, stdout.ready(Interest::ERROR)).await.is_ok(),
            None => {
                tokio::time::sleep(time).await;
                false
            }
        }
    }
}
