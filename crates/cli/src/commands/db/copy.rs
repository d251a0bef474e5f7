//! `db copy`.

use std::cell::Cell;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use countersign_store::db::{self, Copied, CopyProgress, CopyStep};
use countersign_store::postgres::address;
use serde_json::json;

use crate::commands::audit::{self, Form};
use crate::config::{self, Flags, Surroundings};
use crate::start::{BadConfiguration, BadUsage};
use crate::terminal::{Page, Tone, count};

pub(super) fn run(flags: &Flags, to: Option<&str>, form: Form) -> anyhow::Result<()> {
    let named = config::find_database(&Surroundings::of_this_process()?, flags).map_err(BadConfiguration)?;
    let Some(to) = to.map(str::to_owned).or(named) else {
        let missing = "where to? `--to postgres://…` names an empty database";
        return Err(BadUsage(missing.to_owned()).into());
    };
    address::check(&to).map_err(|error| BadUsage(format!("--to: {error}")))?;
    let directory = audit::record_file(flags)?;
    let meter = Meter::new();
    let copied = db::copy(&directory, &to, &|progress| meter.show(progress));
    meter.clear();
    say(&copied?, form)
}

fn say(copied: &Copied, form: Form) -> anyhow::Result<()> {
    let mut page = Page::stdout();
    let report = &copied.report;
    match form {
        Form::Json => {
            let tables = copied.tables.iter();
            page.json(&json!({
                "was_there": copied.was_there,
                "rows": tables.map(|(name, rows)| ((*name).to_owned(), (*rows).into()))
                    .collect::<serde_json::Map<_, _>>(),
                "chain": report.chain,
                "last_seq": report.last_seq,
                "last_hash": report.last_hash.to_hex(),
                "public_key": report.public_key,
            }))?;
        }
        Form::Text => {
            let rows = count(copied.tables.iter().map(|(_, rows)| rows).sum(), "row");
            let tables = count(copied.tables.len() as u64, "table");
            let done = if copied.was_there {
                "was there already"
            } else {
                "is there"
            };
            let whole = page.paint(Tone::Good, &format!("the copy {done}"));
            page.line(format_args!(
                "{whole}: {rows} of {tables}, compared, and the chain `{}` proved to row {}",
                report.chain, report.last_seq
            ))?;
            page.line(
                "Start servers of this state directory with `--database` from now on; the file is no longer used.",
            )?;
        }
    }
    page.flush()
}

/// Says how far it has come, on a terminal.
struct Meter {
    /// When to speak next; none where nobody looks.
    next: Cell<Option<Instant>>,
}

impl Meter {
    const EVERY: Duration = Duration::from_millis(200);

    fn new() -> Self {
        let next = io::stderr().is_terminal().then(Instant::now);
        Self { next: Cell::new(next) }
    }

    fn show(&self, progress: CopyProgress) {
        if self.next.get().is_some_and(|next| Instant::now() >= next) {
            self.next.set(Some(Instant::now() + Self::EVERY));
            let step = match progress.step {
                CopyStep::Copying => "copied",
                CopyStep::Comparing => "compared",
            };
            let CopyProgress {
                table,
                rows_done,
                rows_all,
                ..
            } = progress;
            // Nobody reading standard error is no reason to stop.
            let _ = write!(io::stderr(), "\r\x1b[K{step} {rows_done} of {rows_all} rows of {table}");
        }
    }

    /// Leaves the line as it was.
    fn clear(&self) {
        if self.next.get().is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
