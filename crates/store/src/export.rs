//! The exported record: a file of JSON lines that proves itself, with no server and no database.
//!
//! The first line is the head (format, key, where the rows start and behind which hash), then come
//! the rows, one object each, then the checkpoints, and last a signed line that says how far the
//! file goes, so that a shortened file is noticed. A record of several nodes has several chains: each
//! follows in the same form, and every head says how many there are.

use std::io::{self, BufRead, Write};

use countersign_gateway::audit::chain::{self, Hash};
use serde_json::{Value, json};

use crate::checkpoint::Checkpoint;
use crate::key::{self, Key};
use crate::prove::{self, Fault, Flaw, Report, Voucher, Walk};
use countersign_gateway::audit::row::Row;

const FORMAT: &str = "countersign-record";
const VERSION: u64 = 1;
/// Bytes of one line; a payload holds at most a few of the largest inputs.
const LINE_BYTES_MAX: u64 = 256 << 20;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error(transparent)]
    Flawed(#[from] Flaw),
    #[error("the file cannot be read")]
    Read { source: io::Error },
    #[error("line {line} is not part of an exported record")]
    Line { line: u64 },
    #[error("the file was exported in version {found}, this program reads {VERSION}")]
    Version { found: u64 },
    #[error("the file is truncated: its signed last line is missing")]
    EndMissing,
    #[error("line {line}: the last line's signature is bad")]
    EndSignature { line: u64 },
    #[error("it is signed by key `{found}`, expected `{expected}`")]
    OtherKey { found: String, expected: String },
}

/// Proves an exported file. Without `expected_key` the file's own key is believed, and the report
/// names it for the reader to compare.
pub fn verify_file(reader: impl BufRead, expected_key: Option<&str>) -> Result<Report, FileError> {
    verify_against(reader, expected_key, &[])
}

/// The same, and that the file says what a witness was told. What a witness knows of rows that were pruned since
/// is passed over.
pub fn verify_against(
    reader: impl BufRead,
    expected_key: Option<&str>,
    witness: &[Checkpoint],
) -> Result<Report, FileError> {
    let mut lines = Lines { reader, number: 0 };
    let first = section(&mut lines, expected_key)?;
    let mut others = Vec::new();
    for _ in 1..first.start.chains {
        let next = section(&mut lines, Some(&first.start.public_key))?;
        if next.start.chains != first.start.chains {
            return Err(FileError::Line { line: lines.number });
        }
        others.push(next);
    }
    if lines.next()?.is_some() {
        return Err(FileError::Line { line: lines.number });
    }
    prove_ties(&first, &others)?;
    prove_witnessed(&first, &others, witness)?;
    let mut report = first.report;
    report.others = others.into_iter().map(|section| section.report).collect();
    Ok(report)
}

/// What a file tells of one chain.
struct Section {
    start: Start,
    hashes: Vec<Hash>,
    checkpoints: Vec<Checkpoint>,
    report: Report,
}

fn section(lines: &mut Lines<impl BufRead>, expected_key: Option<&str>) -> Result<Section, FileError> {
    let start = match lines.next()? {
        Some(text) => Start::read(&text, lines.number)?,
        None if lines.number == 1 => return Err(FileError::Line { line: 1 }),
        None => return Err(FileError::EndMissing),
    };
    if let Some(expected) = expected_key
        && expected != start.public_key
    {
        return Err(FileError::OtherKey {
            found: start.public_key,
            expected: expected.to_owned(),
        });
    }
    let mut walk = Walk::new(start.first_seq..=start.last_seq, start.prev_hash, &[]);
    let mut hashes = Vec::new();
    let mut checkpoints = Vec::new();
    loop {
        let text = lines.next()?.ok_or(FileError::EndMissing)?;
        let bad_line = FileError::Line { line: lines.number };
        if let Some(end) = inside(&text, END) {
            let end = End::from_json(&end).filter(|end| end.line() == text).ok_or(bad_line)?;
            let report = conclude(&start, &walk, &hashes, &checkpoints, &end, lines.number)
                .map_err(|error| start.named(error))?;
            return Ok(Section {
                start,
                hashes,
                checkpoints,
                report,
            });
        }
        if let Some(checkpoint) = inside(&text, CHECKPOINT) {
            let checkpoint = Checkpoint::from_json(&checkpoint).filter(|it| checkpoint_line(it) == text);
            checkpoints.push(checkpoint.ok_or(bad_line)?);
            continue;
        }
        let row = Row::from_json(&text).ok_or(bad_line)?;
        if row.seq > walk.next() && lines.holds_row(walk.next())? {
            let written_at = row.seq;
            let flaw = Fault::Reordered { written_at }.at(walk.next());
            return Err(start.named(flaw.into()));
        }
        walk.step(&row.as_link()).map_err(|flaw| start.named(flaw.into()))?;
        hashes.push(row.hash);
    }
}

/// Every chain must be what the checkpoints of the others say it was, as far as the file reaches.
fn prove_ties(first: &Section, others: &[Section]) -> Result<(), Flaw> {
    let all = || std::iter::once(first).chain(others);
    for head in all().flat_map(|it| &it.checkpoints).flat_map(|it| &it.heads) {
        let Some(section) = all().find(|it| it.start.chain == head.chain) else {
            let should_reach = head.seq;
            return Err(Fault::Truncated { should_reach }.at(1).of(&head.chain));
        };
        if section.start.owner() != head.public_key {
            return Err(Fault::OtherKey.at(head.seq).of(&head.chain));
        }
        let Some(place) = head.seq.checked_sub(section.start.first_seq) else {
            continue;
        };
        let hash = usize::try_from(place).ok().and_then(|place| section.hashes.get(place));
        if hash != Some(&head.hash) {
            return Err(Fault::CheckpointMismatch.at(head.seq).of(&head.chain));
        }
    }
    Ok(())
}

/// No key, row or end may be another than what was told the witness.
fn prove_witnessed(first: &Section, others: &[Section], witness: &[Checkpoint]) -> Result<(), Flaw> {
    for told in witness {
        let named = |flaw: Flaw| if others.is_empty() { flaw } else { flaw.of(&told.chain) };
        let mut all = std::iter::once(first).chain(others);
        let Some(section) = all.find(|it| it.start.chain == told.chain) else {
            let should_reach = told.seq;
            return Err(Fault::Truncated { should_reach }.at(1).of(&told.chain));
        };
        if section.start.owner() != told.public_key {
            return Err(named(Fault::WitnessKey.at(told.seq)));
        }
        if !told.is_signed_by(section.start.owner()) {
            return Err(named(Fault::BadSignature.at(told.seq)));
        }
        let Some(place) = told.seq.checked_sub(section.start.first_seq) else {
            continue;
        };
        match usize::try_from(place).ok().and_then(|place| section.hashes.get(place)) {
            Some(hash) if *hash == told.hash => {}
            Some(_) => return Err(named(Fault::CheckpointMismatch.at(told.seq))),
            None => {
                let should_reach = told.seq;
                return Err(named(Fault::Truncated { should_reach }.at(section.report.last_seq + 1)));
            }
        }
    }
    Ok(())
}

fn conclude(
    start: &Start,
    walk: &Walk,
    hashes: &[Hash],
    checkpoints: &[Checkpoint],
    end: &End,
    line: u64,
) -> Result<Report, FileError> {
    if !key::is_signed(&start.public_key, &end.message(start), &end.signature) {
        return Err(FileError::EndSignature { line });
    }
    walk.finish(end.last_seq)?;
    if walk.prev() != end.last_hash {
        return Err(Fault::CheckpointMismatch.at(end.last_seq).into());
    }
    prove::prove_signatures(checkpoints, start.owner())?;
    let first = start.first_seq;
    if prove::start(first, checkpoints)? != start.prev_hash {
        return Err(Fault::StartUnproven.at(first).into());
    }
    prove::prove_spacing(checkpoints, first, end.last_seq)?;
    for checkpoint in checkpoints.iter().filter(|it| it.seq >= first) {
        let place = usize::try_from(checkpoint.seq - first).unwrap_or(usize::MAX);
        match hashes.get(place) {
            Some(hash) if *hash == checkpoint.hash => {}
            Some(_) => return Err(Fault::CheckpointMismatch.at(checkpoint.seq).into()),
            None => {
                let should_reach = checkpoint.seq;
                return Err(Fault::Truncated { should_reach }.at(walk.next()).into());
            }
        }
    }
    if checkpoints.len() as u64 != end.checkpoints {
        return Err(Fault::CheckpointMissing.at(end.last_seq).into());
    }
    Ok(Report {
        chain: start.chain.clone(),
        first_seq: first,
        last_seq: end.last_seq,
        last_hash: walk.prev(),
        rows: hashes.len() as u64,
        checkpoints: end.checkpoints,
        unsigned: prove::unsigned(checkpoints, first, end.last_seq),
        end: Voucher::Signature,
        public_key: start.owner().to_owned(),
        others: Vec::new(),
    })
}

const CHECKPOINT: &str = "{\"checkpoint\":";
const END: &str = "{\"end\":";

/// What a line of this kind tells. Whoever takes it must hold the line against the one that would be written of it: what
/// else stood in it would pass for signed.
fn inside(line: &str, kind: &str) -> Option<Value> {
    serde_json::from_str(line.strip_prefix(kind)?.strip_suffix('}')?).ok()
}

fn checkpoint_line(checkpoint: &Checkpoint) -> String {
    format!("{CHECKPOINT}{}}}", checkpoint.to_json())
}

/// The first line of a chain.
pub(crate) struct Start {
    /// Whose signature ends what the file tells of the chain.
    pub(crate) public_key: String,
    pub(crate) chain: String,
    /// The key of the chain's own node, where the file was exported by another.
    pub(crate) chain_key: Option<String>,
    /// How many chains the file tells of.
    pub(crate) chains: u64,
    pub(crate) first_seq: u64,
    pub(crate) last_seq: u64,
    pub(crate) prev_hash: Hash,
}

impl Start {
    pub(crate) fn write(&self, writer: &mut dyn Write) -> io::Result<()> {
        writeln!(writer, "{}", self.line())
    }

    fn line(&self) -> String {
        self.to_json().to_string()
    }

    /// The key that signs this chain's checkpoints.
    fn owner(&self) -> &str {
        self.chain_key.as_ref().unwrap_or(&self.public_key)
    }

    /// The same error, which says in which chain where there are several.
    fn named(&self, error: FileError) -> FileError {
        match error {
            FileError::Flawed(flaw) if self.chains > 1 => FileError::Flawed(flaw.of(&self.chain)),
            other => other,
        }
    }

    fn to_json(&self) -> Value {
        let mut value = json!({
            "format": FORMAT, "version": VERSION, "public_key": self.public_key, "chain": self.chain,
            "first_seq": self.first_seq, "last_seq": self.last_seq, "prev_hash": self.prev_hash.to_hex(),
        });
        if let Some(key) = &self.chain_key {
            value["chain_key"] = key.as_str().into();
        }
        if self.chains > 1 {
            value["chains"] = self.chains.into();
        }
        value
    }

    fn read(text: &str, line: u64) -> Result<Self, FileError> {
        let bad = FileError::Line { line };
        let value: Value = match serde_json::from_str(text) {
            Ok(value) => value,
            Err(_) => return Err(bad),
        };
        if value["format"] != FORMAT {
            return Err(bad);
        }
        match value["version"].as_u64() {
            Some(VERSION) => {}
            Some(found) => return Err(FileError::Version { found }),
            None => return Err(bad),
        }
        let read = || {
            Some(Self {
                public_key: value["public_key"].as_str()?.to_owned(),
                chain: value["chain"].as_str()?.to_owned(),
                chain_key: match &value["chain_key"] {
                    Value::Null => None,
                    key => Some(key.as_str()?.to_owned()),
                },
                chains: match &value["chains"] {
                    Value::Null => 1,
                    chains => chains.as_u64().filter(|&chains| chains > 1)?,
                },
                first_seq: value["first_seq"].as_u64().filter(|&seq| seq > 0)?,
                last_seq: value["last_seq"].as_u64()?,
                prev_hash: Hash::parse(value["prev_hash"].as_str()?)?,
            })
        };
        read().filter(|start| start.line() == text).ok_or(bad)
    }
}

/// The last line. Its signature covers the first one too.
pub(crate) struct End {
    last_seq: u64,
    last_hash: Hash,
    checkpoints: u64,
    signature: String,
}

impl End {
    pub(crate) fn sign(key: &Key, start: &Start, last_hash: Hash, checkpoints: u64) -> Self {
        let mut end = Self {
            last_seq: start.last_seq,
            last_hash,
            checkpoints,
            signature: String::new(),
        };
        end.signature = key.sign(&end.message(start));
        end
    }

    pub(crate) fn write(&self, writer: &mut dyn Write) -> io::Result<()> {
        writeln!(writer, "{}", self.line())
    }

    fn line(&self) -> String {
        let mut value = self.unsigned();
        value["signature"] = self.signature.as_str().into();
        format!("{END}{value}}}")
    }

    fn unsigned(&self) -> Value {
        json!({
            "last_seq": self.last_seq, "last_hash": self.last_hash.to_hex(),
            "checkpoints": self.checkpoints,
        })
    }

    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            last_seq: value["last_seq"].as_u64()?,
            last_hash: Hash::parse(value["last_hash"].as_str()?)?,
            checkpoints: value["checkpoints"].as_u64()?,
            signature: value["signature"].as_str()?.to_owned(),
        })
    }

    fn message(&self, start: &Start) -> String {
        let whole = json!({"start": start.to_json(), "end": self.unsigned()});
        format!("countersign export 1\n{}", chain::canonical(&whole))
    }
}

pub(crate) fn write_checkpoint(writer: &mut dyn Write, checkpoint: &Checkpoint) -> io::Result<()> {
    writeln!(writer, "{}", checkpoint_line(checkpoint))
}

struct Lines<R> {
    reader: R,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> Result<Option<String>, FileError> {
        let mut text = String::new();
        let read = io::Read::take(&mut self.reader, LINE_BYTES_MAX)
            .read_line(&mut text)
            .map_err(|source| FileError::Read { source })?;
        self.number += 1;
        if text.ends_with('\n') {
            text.pop();
        }
        Ok((read > 0).then_some(text))
    }

    /// Whether the row stands somewhere ahead; used once, to tell moved from missing.
    fn holds_row(&mut self, seq: u64) -> Result<bool, FileError> {
        while let Some(text) = self.next()? {
            if Row::from_json(&text).is_some_and(|row| row.seq == seq) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
