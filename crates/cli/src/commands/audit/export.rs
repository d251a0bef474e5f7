//! `audit export`: the record as JSON Lines that verify without a server.

use std::fs::{self, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use countersign_store::sqlite::dump::ExportError;

use super::Reading;
use crate::config::Flags;
use crate::terminal::{Page, told};

pub(super) fn run(flags: &Flags, output: Option<&Path>) -> anyhow::Result<()> {
    let record = Reading::open(flags)?;
    let mut page = Page::stdout();
    // As everywhere, a dash is standard output; `./-` is a file of that name.
    match output.filter(|path| *path != Path::new("-")) {
        None => match record.export(page.raw()) {
            Err(ExportError::Write { source }) => told(Err(source))?,
            exported => exported?,
        },
        Some(path) => {
            write(&record, path)?;
            let shown = path.display();
            page.line(format_args!(
                "wrote `{shown}`; `countersign audit verify {shown}` proves it without a server"
            ))?;
        }
    }
    page.flush()
}

/// A new file for its owner alone; one that is not complete does not stay.
fn write(record: &Reading, path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    let file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("`{shown}` exists and is not written over; name a new file or remove it")
        }
        Err(error) => return Err(error).with_context(|| format!("cannot write `{shown}`")),
    };
    let mut writer = BufWriter::new(&file);
    let written = record
        .export(&mut writer)
        .map_err(anyhow::Error::from)
        .and_then(|()| Ok(writer.flush().and_then(|()| file.sync_all())?));
    if written.is_err() {
        // The reason the export failed is what matters; a file that cannot be removed either does
        // not verify.
        let _ = fs::remove_file(path);
    }
    written.with_context(|| format!("cannot write `{shown}`"))
}
