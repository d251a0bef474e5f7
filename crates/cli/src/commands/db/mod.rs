//! `db`: the database told of, brought up to date, backed up, and moved.

mod copy;
mod status;

use std::path::Path;

use countersign_store::db::{self, Migrated};
use serde_json::json;

use crate::cli::Db;
use crate::commands::audit::{self, Form};
use crate::config::{self, Flags, Surroundings};
use crate::start::{BadConfiguration, BadUsage};
use crate::terminal::{Page, Tone};

pub(crate) fn run(flags: &Flags, db: &Db) -> anyhow::Result<()> {
    match db {
        Db::Status { json } => status::run(flags, Form::of(*json)),
        Db::Migrate { json } => migrate(flags, Form::of(*json)),
        Db::Backup { output } => backup(flags, output),
        Db::Copy { to, json } => copy::run(flags, to.as_deref(), Form::of(*json)),
    }
}

/// The database that is named, if one is, and the state directory; which holds a record if none is.
struct Place {
    directory: std::path::PathBuf,
    database: Option<String>,
}

impl Place {
    fn find(flags: &Flags) -> anyhow::Result<Self> {
        let surroundings = Surroundings::of_this_process()?;
        let database = config::find_database(&surroundings, flags).map_err(BadConfiguration)?;
        let directory = match &database {
            // No node of it is needed to look after a database.
            Some(_) => config::find_state_dir(&surroundings, flags).map_err(BadConfiguration)?,
            None => audit::existing_record(flags)?,
        };
        Ok(Self { directory, database })
    }
}

fn migrate(flags: &Flags, form: Form) -> anyhow::Result<()> {
    let place = Place::find(flags)?;
    let Migrated { from, to } = db::migrate(&place.directory, place.database.as_deref())?;
    let mut page = Page::stdout();
    match form {
        Form::Json => page.json(&json!({"from": from, "to": to}))?,
        Form::Text if from == to => page.line(format_args!("the database is at version {to} already"))?,
        Form::Text => {
            let to = page.paint(Tone::Good, &to.to_string());
            page.line(format_args!("the database was brought from version {from} to {to}"))?;
        }
    }
    page.flush()
}

fn backup(flags: &Flags, output: &Path) -> anyhow::Result<()> {
    let place = Place::find(flags)?;
    if place.database.is_some() {
        let other = "`db backup` is for a file; back a database up by its own tools, such as `pg_dump`";
        return Err(BadUsage(other.to_owned()).into());
    }
    let bytes = db::backup(&place.directory, output)?;
    let mut page = Page::stdout();
    let megabytes = bytes as f64 / 1_000_000.0;
    page.line(format_args!(
        "`{}` holds the record as it is now, {megabytes:.1} MB",
        output.display()
    ))?;
    page.line("Keep the file `record-key` of the state directory with it, where nobody else reads it.")?;
    page.flush()
}
