//! `audit verify`: proves the live record, or an exported file with no server and no state directory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use countersign_store::checkpoint::Checkpoint;
use countersign_store::export::{FileError, verify_against};
use countersign_store::prove::{Flaw, Report};
use countersign_store::sqlite::verify::{Progress, Range, VerifyError};
use countersign_store::witness;
use serde_json::json;

use super::{Form, Reading};
use crate::config::Flags;
use crate::start::{self, BadUsage};
use crate::terminal::{Page, Tone, count};

/// What came out.
enum Proof {
    Sound(Report),
    /// The first thing that is wrong, and its row where it has one.
    Unsound {
        row: Option<u64>,
        problem: String,
    },
}

pub(super) fn run(flags: &Flags, file: Option<&Path>, witness: Option<&Path>, form: Form) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let told = witness.map(told).transpose()?;
    let (subject, proof) = match file {
        None => ("the record".to_owned(), live(flags, told.as_deref())?),
        Some(path) => {
            let unread = || format!("cannot read `{}`", path.display());
            let file = BufReader::new(named(path, &unread())?);
            let proof = exported(file, None, &told.unwrap_or_default()).with_context(unread)?;
            (format!("`{}`", path.display()), proof)
        }
    };
    let mut page = Page::stdout();
    match form {
        Form::Json => page.json(&as_json(&proof))?,
        Form::Text => say(&mut page, &subject, &proof, began.elapsed())?,
    }
    page.flush()?;
    Ok(match proof {
        Proof::Sound(_) => ExitCode::SUCCESS,
        Proof::Unsound { .. } => ExitCode::FAILURE,
    })
}

/// A file that was typed. One that is not there is a slip of the hand, not a record that is not sound.
fn named(path: &Path, unread: &str) -> Result<File, BadUsage> {
    File::open(path).map_err(|error| BadUsage(format!("{unread}: {error}")))
}

/// What the witness was told.
fn told(path: &Path) -> anyhow::Result<Vec<Checkpoint>> {
    let unread = || format!("cannot read the witness `{}`", path.display());
    let file = named(path, &unread())?;
    witness::read(BufReader::new(file)).with_context(unread)
}

fn live(flags: &Flags, witness: Option<&[Checkpoint]>) -> anyhow::Result<Proof> {
    let record = Reading::open(flags)?;
    let meter = Meter::new();
    let proved = record.verify(Range::ALL, &|progress| meter.show(progress));
    meter.clear();
    match proved {
        Ok(report) => match witness {
            Some(witness) => witnessed(&record, witness),
            None => Ok(Proof::Sound(report)),
        },
        Err(VerifyError::Flawed(flaw)) => Ok(unsound(&flaw)),
        Err(error @ VerifyError::Read { .. }) => Err(error.into()),
    }
}

/// Holds the live record, as it would be exported now, against what the witness was told.
fn witnessed(record: &Reading, witness: &[Checkpoint]) -> anyhow::Result<Proof> {
    let (reader, writer) = io::pipe().context("cannot make a pipe")?;
    std::thread::scope(|scope| {
        // It ends early, and is not asked why, when the first flaw is found.
        let exporting = scope.spawn(move || {
            let mut writer = BufWriter::new(writer);
            record.export(&mut writer)?;
            writer.flush()?;
            anyhow::Ok(())
        });
        let proof = exported(BufReader::new(reader), Some(record.public_key()), witness)?;
        let ended = exporting
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match proof {
            Proof::Sound(_) => ended.map(|()| proof),
            Proof::Unsound { .. } => Ok(proof),
        }
    })
}

fn exported(reader: impl BufRead, key: Option<&str>, witness: &[Checkpoint]) -> anyhow::Result<Proof> {
    match verify_against(reader, key, witness) {
        Ok(report) => Ok(Proof::Sound(report)),
        Err(FileError::Flawed(flaw)) => Ok(unsound(&flaw)),
        Err(error @ FileError::Read { .. }) => Err(error.into()),
        Err(error) => Ok(Proof::Unsound {
            row: None,
            problem: error.to_string(),
        }),
    }
}

fn unsound(flaw: &Flaw) -> Proof {
    Proof::Unsound {
        row: Some(flaw.seq),
        problem: match &flaw.chain {
            Some(chain) => format!("{} (chain `{chain}`)", flaw.fault),
            None => flaw.fault.to_string(),
        },
    }
}

/// What is said of one chain.
fn chain(report: &Report) -> serde_json::Value {
    json!({
        "chain": report.chain,
        "rows": report.rows,
        "first_seq": report.first_seq,
        "last_seq": report.last_seq,
        "last_hash": report.last_hash.to_hex(),
        "checkpoints": report.checkpoints,
        "public_key": report.public_key,
    })
}

fn as_json(proof: &Proof) -> serde_json::Value {
    match proof {
        Proof::Sound(report) => {
            let mut told = chain(report);
            told["ok"] = true.into();
            // Of a record that several nodes write.
            if !report.others.is_empty() {
                told["others"] = report.others.iter().map(chain).collect();
            }
            told
        }
        Proof::Unsound { row, problem } => json!({"ok": false, "row": row, "problem": problem}),
    }
}

fn say(page: &mut Page, subject: &str, proof: &Proof, took: Duration) -> anyhow::Result<()> {
    match proof {
        Proof::Sound(report) => {
            let all: u64 = report.chains().map(|chain| chain.rows).sum();
            let speed = all as f64 / took.as_secs_f64().max(0.000_001);
            let checkpoints = report.chains().map(|chain| chain.checkpoints).sum();
            let mut rows = count(all, "row");
            if !report.others.is_empty() {
                rows = format!("{rows} of {}", count(report.chains().count() as u64, "chain"));
            }
            let checkpoints = count(checkpoints, "checkpoint");
            let public_key = &report.public_key;
            let sound = page.paint(Tone::Good, "sound");
            page.line(format_args!(
                "{subject} is {sound}: {rows} and {checkpoints} proved ({speed:.0} rows/s), signed by {public_key}"
            ))
        }
        Proof::Unsound { row, problem } => {
            let place = row.map_or_else(String::new, |row| format!("row {row}: "));
            start::say(&format!("countersign: {subject} is not sound: {place}{problem}"));
            Ok(())
        }
    }
}

/// Says how far it has come, on a terminal and for a proof that takes a while.
struct Meter {
    /// When to speak next; none where nobody looks.
    next: Mutex<Option<Instant>>,
}

impl Meter {
    const PATIENCE: Duration = Duration::from_secs(1);
    const EVERY: Duration = Duration::from_millis(200);

    fn new() -> Self {
        let next = io::stderr().is_terminal().then(|| Instant::now() + Self::PATIENCE);
        Self { next: Mutex::new(next) }
    }

    fn show(&self, progress: Progress) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if next.is_some_and(|next| Instant::now() >= next) {
            *next = Some(Instant::now() + Self::EVERY);
            // Nobody reading standard error is no reason to stop.
            let _ = write!(
                io::stderr(),
                "\r\x1b[Kproved {} of {} rows",
                progress.rows_done,
                progress.rows_all
            );
        }
    }

    /// Leaves the line as it was.
    fn clear(&self) {
        if io::stderr().is_terminal() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
