//! One chain of a live record on its way into a file that verifies alone (see [`crate::export`]), whichever database
//! its rows come from.

use std::io::Write;

use countersign_gateway::audit::chain::Hash;
use countersign_gateway::audit::row::Row;

use crate::checkpoint::Checkpoint;
use crate::export::{End, Start, write_checkpoint};
use crate::key::Key;
use crate::sqlite::dump::ExportError;

/// Rows read at once, on SQLite in one transaction.
const RANGE_ROWS: u64 = 1_024;

/// Writes a chain from its start to its signed end; `rows` reads those between two numbers. Where a seal tells the
/// end, no other is signed: the signature would speak for rows that somebody else has put there.
pub(crate) fn write_chain(
    writer: &mut dyn Write,
    key: &Key,
    start: &Start,
    checkpoints: &[Checkpoint],
    sealed: Option<(u64, Hash)>,
    rows: impl Fn(u64, u64) -> Result<Vec<Row>, ExportError>,
) -> Result<(), ExportError> {
    let unwritten = |source| ExportError::Write { source };
    start.write(writer).map_err(unwritten)?;
    let mut last_hash = start.prev_hash;
    let mut from = start.first_seq;
    while from <= start.last_seq {
        let to = start.last_seq.min(from + RANGE_ROWS - 1);
        for row in rows(from, to)? {
            let line = row
                .to_json()
                .map_err(|source| ExportError::Payload { seq: row.seq, source })?;
            writeln!(writer, "{line}").map_err(unwritten)?;
            last_hash = row.hash;
        }
        from = to + 1;
    }
    for checkpoint in checkpoints {
        write_checkpoint(writer, checkpoint).map_err(unwritten)?;
    }
    if sealed.is_some_and(|end| end != (start.last_seq, last_hash)) {
        return Err(ExportError::Unsealed);
    }
    End::sign(key, start, last_hash, checkpoints.len() as u64)
        .write(writer)
        .map_err(unwritten)
}
