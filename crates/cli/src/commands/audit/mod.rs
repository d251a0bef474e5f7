//! `audit`: the record read, followed, proved, exported and pruned.
//!
//! Everything but `prune` only reads, also while a server writes, and makes nothing where there is
//! no record yet.

mod export;
mod prune;
mod query;
mod summary;
pub(crate) mod tail;
mod verify;

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use countersign_gateway::clock::Clock;
use countersign_store::sqlite::site;
use countersign_store::{Durability, Options, Store, key};

use crate::cli::Audit;
use crate::config::{self, Flags, Surroundings};
use crate::start::BadConfiguration;

pub(crate) fn run(flags: &Flags, audit: &Audit) -> anyhow::Result<ExitCode> {
    match audit {
        Audit::Tail { json, last, no_follow } => {
            let form = Form::of(*json);
            let until = if *no_follow {
                tail::Until::Now
            } else {
                tail::Until::Stopped
            };
            tail::run(flags, form, *last as usize, until)?;
        }
        Audit::Query(asked) => query::run(flags, asked)?,
        Audit::Verify {
            file,
            witness,
            key,
            json,
        } => {
            let asked = verify::Asked {
                file: file.as_deref(),
                witness: witness.as_deref(),
                key: key.as_deref(),
            };
            return verify::run(flags, &asked, Form::of(*json));
        }
        Audit::Export { output } => export::run(flags, output.as_deref())?,
        Audit::Prune { before, json } => prune::run(flags, before, Form::of(*json))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// For people or for programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Text,
    Json,
}

impl Form {
    pub(crate) fn of(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// A record that is only read.
///
/// Never dropped: dropping a store is a clean stop, which signs the chain's end, and whoever only
/// looks at a record signs nothing of it.
pub(crate) struct Reading(ManuallyDrop<Store>);

impl Reading {
    pub(crate) fn open(flags: &Flags) -> anyhow::Result<Self> {
        let directory = existing_record(flags)?;
        let database = config::find_database(&Surroundings::of_this_process()?, flags).map_err(BadConfiguration)?;
        let options = Options::new(Durability::Process, Clock::system()).on(database);
        let store = Store::open_to_read(&directory, options).context("cannot open the record")?;
        Ok(Self(ManuallyDrop::new(store)))
    }
}

impl Deref for Reading {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.0
    }
}

/// The state directory, if it holds a record or a node of one. Opening would make what is missing, so it is asked first.
pub(crate) fn existing_record(flags: &Flags) -> anyhow::Result<PathBuf> {
    let surroundings = Surroundings::of_this_process()?;
    let database = config::find_database(&surroundings, flags).map_err(BadConfiguration)?;
    if database.is_none() {
        return record_file(flags);
    }
    let directory = config::find_state_dir(&surroundings, flags).map_err(BadConfiguration)?;
    anyhow::ensure!(
        is_there(&directory, key::FILE_NAME)?,
        "`{}` is no node of the database yet; a server with this `--state-dir` makes it one",
        directory.display()
    );
    Ok(directory)
}

/// The state directory, if it holds a record in a file, whatever database is named besides.
pub(crate) fn record_file(flags: &Flags) -> anyhow::Result<PathBuf> {
    let directory = config::find_state_dir(&Surroundings::of_this_process()?, flags).map_err(BadConfiguration)?;
    anyhow::ensure!(
        is_there(&directory, site::FILE_NAME)?,
        "there is no record in `{}`; `countersign exec` or a server starts one, `--state-dir` names another place",
        directory.display()
    );
    anyhow::ensure!(
        is_there(&directory, key::FILE_NAME)?,
        "the signing key `{}` is gone; put it back, for without it the record cannot be proved",
        directory.join(key::FILE_NAME).display()
    );
    Ok(directory)
}

fn is_there(directory: &Path, name: &str) -> anyhow::Result<bool> {
    let looked = directory.join(name).try_exists();
    looked.with_context(|| format!("cannot look into the state directory `{}`", directory.display()))
}
