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
use countersign_store::prove::{Flaw, Report, Voucher};
use countersign_store::sqlite::verify::{Progress, Range, VerifyError};
use countersign_store::{key, witness};
use serde_json::json;

use super::{Form, Reading, is_there};
use crate::config::{self, Flags, Surroundings};
use crate::start::{self, BadConfiguration, BadUsage};
use crate::terminal::{Page, Tone, count};

/// What is to be proved, and held against what.
pub(super) struct Asked<'a> {
    pub(super) file: Option<&'a Path>,
    pub(super) witness: Option<&'a Path>,
    pub(super) key: Option<&'a str>,
}

/// Whose the key is that signed an exported file. Anybody can make a key and sign a file of their own with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Signer {
    /// The one that was named.
    Named,
    /// That of the state directory.
    Own,
    Another,
    /// There was nothing to compare it with.
    Unknown,
}

impl Signer {
    fn as_str(self) -> &'static str {
        match self {
            Self::Named => "named",
            Self::Own => "own",
            Self::Another => "another",
            Self::Unknown => "not compared",
        }
    }
}

/// What came out.
enum Proof {
    Sound {
        report: Report,
        /// Checkpoints of a witness that were held against it, where one was named.
        witnessed: Option<u64>,
        /// Of an exported file.
        signer: Option<Signer>,
    },
    /// The first thing that is wrong, and its row where it has one.
    Unsound { row: Option<u64>, problem: String },
}

pub(super) fn run(flags: &Flags, asked: &Asked<'_>, form: Form) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let key = asked.key.map(public_key).transpose()?;
    let told = asked.witness.map(told).transpose()?;
    let (subject, proof) = match asked.file {
        None => ("the record".to_owned(), live(flags, key.as_deref(), told.as_deref())?),
        Some(path) => {
            let unread = || format!("cannot read `{}`", path.display());
            let file = BufReader::new(named(path, &unread())?);
            let mut proof = exported(file, key.as_deref(), told.as_deref()).with_context(unread)?;
            if let Proof::Sound { report, signer, .. } = &mut proof {
                *signer = Some(match key {
                    Some(_) => Signer::Named,
                    None => compared(flags, report)?,
                });
            }
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
        Proof::Sound { .. } => ExitCode::SUCCESS,
        Proof::Unsound { .. } => ExitCode::FAILURE,
    })
}

/// A public key as it is printed.
fn public_key(text: &str) -> Result<String, BadUsage> {
    let fits = text.len() == 64 && text.bytes().all(|it| it.is_ascii_hexdigit());
    let wrong =
        || BadUsage("`--key` takes a public key, 64 hexadecimal digits, as `audit verify` prints it".to_owned());
    fits.then(|| text.to_ascii_lowercase()).ok_or_else(wrong)
}

/// Holds the key of a file against that of the state directory, where there is one.
fn compared(flags: &Flags, report: &Report) -> anyhow::Result<Signer> {
    let directory = config::find_state_dir(&Surroundings::of_this_process()?, flags).map_err(BadConfiguration)?;
    if !is_there(&directory, key::FILE_NAME)? {
        return Ok(Signer::Unknown);
    }
    let own = key::Key::load_or_create(&directory)?;
    Ok(if own.public() == report.public_key {
        Signer::Own
    } else {
        Signer::Another
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

fn live(flags: &Flags, key: Option<&str>, witness: Option<&[Checkpoint]>) -> anyhow::Result<Proof> {
    let record = Reading::open(flags)?;
    if let Some(expected) = key.filter(|key| *key != record.public_key()) {
        let (found, expected) = (record.public_key().to_owned(), expected.to_owned());
        return Ok(Proof::Unsound {
            row: None,
            problem: FileError::OtherKey { found, expected }.to_string(),
        });
    }
    let meter = Meter::new();
    let proved = record.verify(Range::ALL, &|progress| meter.show(progress));
    meter.clear();
    match proved {
        Ok(report) => match witness {
            Some(witness) => witnessed(&record, report, witness),
            None => Ok(Proof::Sound {
                report,
                witnessed: None,
                signer: None,
            }),
        },
        Err(VerifyError::Flawed(flaw)) => Ok(unsound(&flaw)),
        Err(VerifyError::Astray { what }) => Ok(Proof::Unsound {
            row: None,
            problem: what,
        }),
        Err(error @ VerifyError::Read { .. }) => Err(error.into()),
    }
}

/// Holds the live record, as it would be exported now, against what the witness was told. What is said of it then is what was
/// proved of the record itself.
fn witnessed(record: &Reading, report: Report, witness: &[Checkpoint]) -> anyhow::Result<Proof> {
    let (reader, writer) = io::pipe().context("cannot make a pipe")?;
    std::thread::scope(|scope| {
        // It ends early, and is not asked why, when the first flaw is found.
        let exporting = scope.spawn(move || {
            let mut writer = BufWriter::new(writer);
            record.export(&mut writer)?;
            writer.flush()?;
            anyhow::Ok(())
        });
        let proof = exported(BufReader::new(reader), Some(record.public_key()), Some(witness))?;
        let ended = exporting
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match proof {
            Proof::Sound { witnessed, .. } => ended.map(|()| Proof::Sound {
                report,
                witnessed,
                signer: None,
            }),
            Proof::Unsound { .. } => Ok(proof),
        }
    })
}

fn exported(reader: impl BufRead, key: Option<&str>, witness: Option<&[Checkpoint]>) -> anyhow::Result<Proof> {
    match verify_against(reader, key, witness.unwrap_or_default()) {
        Ok(report) => {
            let witnessed = witness.map(|told| told.iter().filter(|it| is_compared(it, &report)).count() as u64);
            Ok(Proof::Sound {
                report,
                witnessed,
                signer: None,
            })
        }
        Err(FileError::Flawed(flaw)) => Ok(unsound(&flaw)),
        Err(error @ FileError::Read { .. }) => Err(error.into()),
        Err(error) => Ok(Proof::Unsound {
            row: None,
            problem: error.to_string(),
        }),
    }
}

/// Whether the row that a witness was told of is still there; those that were pruned are passed over.
fn is_compared(told: &Checkpoint, report: &Report) -> bool {
    let chain = report.chains().find(|it| it.chain == told.chain);
    chain.is_some_and(|chain| told.seq >= chain.first_seq)
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
        "rows_behind_checkpoint": report.unsigned,
        "end": report.end.as_str(),
        "public_key": report.public_key,
    })
}

fn as_json(proof: &Proof) -> serde_json::Value {
    match proof {
        Proof::Sound {
            report,
            witnessed,
            signer,
        } => {
            let mut told = chain(report);
            told["ok"] = true.into();
            if let Some(witnessed) = witnessed {
                told["witnessed"] = (*witnessed).into();
            }
            if let Some(signer) = signer {
                told["key"] = signer.as_str().into();
            }
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
        Proof::Sound {
            report,
            witnessed,
            signer,
        } => {
            let all: u64 = report.chains().map(|chain| chain.rows).sum();
            let speed = all as f64 / took.as_secs_f64().max(0.000_001);
            let checkpoints = report.chains().map(|chain| chain.checkpoints).sum();
            let mut rows = count(all, "row");
            if !report.others.is_empty() {
                rows = format!("{rows} of {}", count(report.chains().count() as u64, "chain"));
            }
            let checkpoints = count(checkpoints, "checkpoint");
            let vouched = vouched(report);
            let sound = page.paint(Tone::Good, "sound");
            page.line(format_args!(
                "{subject} is {sound}: {rows} and {checkpoints} proved ({speed:.0} rows/s), {vouched}"
            ))?;
            for other in report
                .others
                .iter()
                .filter(|it| it.unsigned > 0 && it.end == Voucher::Nothing)
            {
                let rows = count(other.unsigned, "row");
                page.line(format_args!(
                    "chain `{}`: {rows} behind its last checkpoint proved by links only; its own node can prove the seal",
                    other.chain
                ))?;
            }
            match signer {
                Some(Signer::Own) => page.line(format_args!("the key is that of this state directory"))?,
                Some(Signer::Another) => start::say(
                    "countersign: the key is another than that of this state directory, and anybody can make one; `--key` names \
                     the one that must have signed it",
                ),
                Some(Signer::Unknown) => start::say(
                    "countersign: the key was compared with none, and anybody can make one; `--key` names the one that must have \
                     signed it",
                ),
                Some(Signer::Named) | None => {}
            }
            match witnessed {
                Some(0) => page.line(format_args!(
                    "the witness proves nothing: it was told no checkpoint of a row that is here"
                )),
                Some(told) => page.line(format_args!(
                    "held against {} of the witness",
                    count(*told, "checkpoint")
                )),
                None => Ok(()),
            }
        }
        Proof::Unsound { row, problem } => {
            let place = row.map_or_else(String::new, |row| format!("row {row}: "));
            start::say(&format!("countersign: {subject} is not sound: {place}{problem}"));
            Ok(())
        }
    }
}

/// What stands for the rows of a record's own chain: what was signed, and what vouches for those behind.
fn vouched(report: &Report) -> String {
    let key = &report.public_key;
    let behind = count(report.unsigned, "row");
    match (report.end, report.checkpoints, report.unsigned) {
        (Voucher::Signature, _, _) => format!("its end signed by {key}"),
        (_, 0, 0) => format!("nothing signed yet; its key is {key}"),
        (Voucher::Seal, 0, _) => format!("nothing signed yet; the end is sealed by {key}"),
        (Voucher::Nothing, 0, _) => format!("by links only, nothing signed yet; its key is {key}"),
        (_, _, 0) => format!("signed by {key}"),
        (Voucher::Seal, _, _) => format!("{behind} behind the last checkpoint by the head's seal, signed by {key}"),
        (Voucher::Nothing, _, _) => format!("{behind} behind the last checkpoint by links only, signed by {key}"),
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
