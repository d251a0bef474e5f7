//! Moves the record of a file into an empty database, whole or not at all.
//!
//! Everything is written in one transaction, read back and compared before it is committed: an interrupted copy leaves
//! nothing. The chain keeps its name, rows, hashes and checkpoints; the state directory becomes the node of that name,
//! so its key goes on signing it. Afterwards the file is marked as moved, and no longer written.

mod plan;
mod value;

use std::path::{Path, PathBuf};
use std::time::Duration;

use countersign_gateway::audit::chain::Hash;

use super::PgStore;
use super::address::Address;
use super::link::{Exchange, Link};
use super::migrations::{self, MigrateError};
use super::node::{self, NodeError};
use super::site;
use super::trouble::Trouble;
use crate::key::{Key, KeyError};
use crate::prove::Report;
use crate::sqlite::CHAIN;
use crate::sqlite::source::{Source, TakeError};
use crate::sqlite::verify::{Range, VerifyError};
use crate::{Options, SqliteStore, moved, sqlite};
use plan::{Column, From, Names, Plan, Planned};
use value::{RowSum, TableSum, Values};

/// How long one statement may take: some wait for the database's disk.
const PATIENCE: Duration = Duration::from_secs(600);
/// Rows sent, or read back, at once; fewer where they are long.
const BATCH_ROWS: u64 = 1_000;
const BATCH_BYTES: usize = 4 << 20;

/// How far a copy has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyProgress {
    pub step: CopyStep,
    pub table: &'static str,
    pub rows_done: u64,
    pub rows_all: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyStep {
    Copying,
    Comparing,
}

/// What a copy came to.
pub struct Copied {
    /// Tables with rows, and how many.
    pub tables: Vec<(&'static str, u64)>,
    /// The record as it was proved in the database.
    pub report: Report,
    /// Whether an earlier copy was complete already, and only its end was made up for.
    pub was_there: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error(transparent)]
    Take(#[from] TakeError),
    #[error("the record cannot be read")]
    Source(#[from] rusqlite::Error),
    #[error("the record was moved to {to} before; it is gone on with there")]
    Moved { to: String },
    #[error("the record cannot be opened")]
    Open(#[from] sqlite::site::OpenError),
    #[error("the record is not sound, so it is not copied; `audit verify` names the first row that is wrong")]
    Unsound(#[source] VerifyError),
    #[error("the record has no head, so it is not copied; `audit verify` tells more")]
    Headless,
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error(
        "this state directory is the node `{name}` of a database already; if that database is no longer used, move the file `{path}` away and copy again"
    )]
    OtherNode { name: String, path: PathBuf },
    #[error(transparent)]
    Target(#[from] site::OpenError),
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    #[error("the database is not empty, the table `{table}` has rows; name an empty one")]
    NotEmpty { table: String },
    #[error("{what} of the record has no place in the database of this version; nothing was copied")]
    NoPlace { what: String },
    #[error("`{table}.{column}` has a value that is not {expected}; nothing was copied")]
    Value {
        table: &'static str,
        column: String,
        expected: &'static str,
    },
    #[error("the database gives back other rows of `{table}` than it was given; nothing was copied")]
    Differs { table: &'static str },
    #[error("the copy failed and nothing of it stays: {0}")]
    Write(#[from] Trouble),
    #[error("the connection was lost while the copy was being completed; copy again, which tells what became of it")]
    Unknown(#[source] Trouble),
    #[error("the copy in the database cannot be proved; the file is as it was and stays in use")]
    Unproved(#[source] VerifyError),
    #[error("the copy is complete, but the file `{path}` that says so cannot be written")]
    Mark { path: PathBuf, source: std::io::Error },
}

impl CopyError {
    fn no_place(table: &str, column: Option<&str>) -> Self {
        let what = match column {
            Some(column) => format!("the column `{table}.{column}`"),
            None => format!("the table `{table}`"),
        };
        Self::NoPlace { what }
    }
}

/// Moves the record of a state directory to the database at `url`. Blocks.
pub fn copy(
    directory: &Path,
    url: &str,
    options: &Options,
    progress: &dyn Fn(CopyProgress),
) -> Result<Copied, CopyError> {
    if let Some(to) = moved::to(directory).map_err(|source| mark_error(directory, source))? {
        return Err(CopyError::Moved { to });
    }
    // Refused first, so that nothing happens to a record in use.
    drop(Source::take(directory)?);
    prove_source(directory, options)?;
    let source = Source::take(directory)?;
    let key = Key::load_or_create(directory)?;
    let head = source.head()?.ok_or(CopyError::Headless)?;
    match node::named(directory)? {
        Some(name) if name != CHAIN => {
            let path = directory.join(node::FILE_NAME);
            return Err(CopyError::OtherNode { name, path });
        }
        Some(_) | None => {}
    }

    let address = Address::of(url, options)?;
    let exchange = Exchange::start().map_err(|source| site::OpenError::Thread { source })?;
    let connected = exchange.connect(&address, PATIENCE);
    let link = connected.map_err(|source| site::OpenError::Connect { source })?;
    migrations::apply(&link)?;
    let names = Names {
        node: CHAIN,
        public_key: key.public(),
    };
    let work = Work {
        source: &source,
        link: &link,
        plan: Plan::make(&source, &link, &names)?,
        shared: key.shared_seed(),
        progress,
    };
    let was_there = is_there(&link, head, key.public())?;
    if !was_there {
        work.run(directory)?;
    }
    let tables = work.plan.tables.iter().map(|it| (it.table, it.rows));
    let tables = tables.filter(|(_, rows)| *rows > 0).collect();
    drop(link);
    let report = prove_copy(directory, url, options)?;
    moved::mark(directory, &address.place()).map_err(|source| mark_error(directory, source))?;
    Ok(Copied {
        tables,
        report,
        was_there,
    })
}

fn mark_error(directory: &Path, source: std::io::Error) -> CopyError {
    let path = directory.join(moved::FILE_NAME);
    CopyError::Mark { path, source }
}

/// Brings the file up to date and proves it; leaving it signs the chain's end.
fn prove_source(directory: &Path, options: &Options) -> Result<(), CopyError> {
    let store = SqliteStore::open(directory, options.clone().on(None))?;
    store.verify(Range::ALL, &|_| ()).map_err(CopyError::Unsound)?;
    Ok(())
}

/// Opens the database as the node that it now is, and proves what is there.
fn prove_copy(directory: &Path, url: &str, options: &Options) -> Result<Report, CopyError> {
    let store = PgStore::open(directory, url, options.clone())?;
    store.verify(Range::ALL, &|_| ()).map_err(CopyError::Unproved)
}

/// Whether an earlier copy of this very record is complete.
fn is_there(link: &Link, head: (u64, Hash), public_key: &str) -> Result<bool, Trouble> {
    let found = link.first(
        "SELECT public_key FROM chain_heads WHERE chain = $1 AND (seq = $2 AND hash = $3
             OR EXISTS (SELECT 1 FROM flow_events WHERE chain = $1 AND seq = $2 AND hash = $3))",
        &[&CHAIN, &head.0.cast_signed(), &head.1.as_bytes().as_slice()],
        |row| Ok(row.try_get::<_, String>(0)?),
    )?;
    Ok(found.is_some_and(|found| found == public_key))
}

struct Work<'a> {
    source: &'a Source,
    link: &'a Link,
    plan: Plan,
    /// What clients carry was signed with secrets made of this.
    shared: [u8; 32],
    progress: &'a dyn Fn(CopyProgress),
}

impl Work<'_> {
    /// One transaction. After an error the connection goes, and the transaction with it.
    fn run(&self, directory: &Path) -> Result<(), CopyError> {
        self.link.batch("BEGIN")?;
        self.take_empty()?;
        for table in &self.plan.tables {
            let sent = self.send(table)?;
            if self.read_back(table)? != sent {
                return Err(CopyError::Differs { table: table.table });
            }
        }
        // Nothing in an empty database was signed with the one that it may have.
        self.link.execute(
            "INSERT INTO shared_secret (is_only, secret) VALUES (true, $1)
             ON CONFLICT (is_only) DO UPDATE SET secret = excluded.secret",
            &[&self.shared.as_slice()],
        )?;
        // Before the commit: a server that starts between the two would make itself another name.
        node::name_it(directory, CHAIN)?;
        self.link.batch("COMMIT").map_err(|error| {
            if error.is_lost() {
                CopyError::Unknown(error)
            } else {
                CopyError::Write(error)
            }
        })
    }

    /// Keeps everybody else out, and looks that nobody was here before.
    fn take_empty(&self) -> Result<(), CopyError> {
        let tables: Vec<String> = self.plan.content.iter().map(|name| quoted(name)).collect();
        let locked = format!("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", tables.join(", "));
        self.link.batch(&locked)?;
        for name in &self.plan.content {
            let sql = format!("SELECT 1 FROM {} LIMIT 1", quoted(name));
            if self.link.exists(&sql, &[])? {
                let table = name.clone();
                return Err(CopyError::NotEmpty { table });
            }
        }
        Ok(())
    }

    fn send(&self, table: &Planned) -> Result<TableSum, CopyError> {
        let insert = insertion(table);
        let names: Vec<String> = table
            .columns
            .iter()
            .filter(|column| !matches!(column.from, From::Given(_)))
            .map(|column| column.name.clone())
            .collect();
        let mut batch = Batch::of(table);
        let mut sum = TableSum::default();
        self.source.each(table.table, &names, |row| {
            sum.add(batch.take(table, row)?);
            if batch.rows >= BATCH_ROWS || batch.bytes >= BATCH_BYTES {
                batch.send(self.link, &insert)?;
                self.tell(CopyStep::Copying, table, sum.rows);
            }
            Ok::<_, CopyError>(())
        })?;
        batch.send(self.link, &insert)?;
        for column in &table.numbered {
            let sql = format!(
                "SELECT setval(pg_get_serial_sequence($1, $2), max({0})) FROM {1} HAVING max({0}) IS NOT NULL",
                quoted(column),
                quoted(table.table)
            );
            self.link.query(&sql, &[&table.table, column])?;
        }
        Ok(sum)
    }

    /// What the database has now, read over the same connection: nobody else can see it yet.
    fn read_back(&self, table: &Planned) -> Result<TableSum, CopyError> {
        let columns: Vec<String> = table.columns.iter().map(|column| quoted(&column.name)).collect();
        // By its name: statements are kept by their words, and what they give back is not the same for two tables.
        let cursor = quoted(&format!("copied_{}", table.table));
        self.link.batch(&format!(
            "DECLARE {cursor} NO SCROLL CURSOR FOR SELECT {} FROM {}",
            columns.join(", "),
            quoted(table.table)
        ))?;
        let next = format!("FETCH {BATCH_ROWS} FROM {cursor}");
        let mut sum = TableSum::default();
        loop {
            let rows = self.link.query(&next, &[])?;
            if rows.is_empty() {
                break;
            }
            for row in &rows {
                let mut digest = RowSum::default();
                for (index, column) in table.columns.iter().enumerate() {
                    digest.add_column(row, index, column.kind)?;
                }
                sum.add(digest);
            }
            self.tell(CopyStep::Comparing, table, sum.rows);
        }
        self.link.batch(&format!("CLOSE {cursor}"))?;
        Ok(sum)
    }

    fn tell(&self, step: CopyStep, table: &Planned, rows_done: u64) {
        (self.progress)(CopyProgress {
            step,
            table: table.table,
            rows_done,
            rows_all: table.rows,
        });
    }
}

fn insertion(table: &Planned) -> String {
    let columns: Vec<String> = table.columns.iter().map(|column| quoted(&column.name)).collect();
    let lists = (1..).zip(&table.columns);
    let lists: Vec<String> = lists
        .map(|(number, column)| format!("${number}::{}", column.kind.list()))
        .collect();
    format!(
        "INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT * FROM unnest({})",
        quoted(table.table),
        columns.join(", "),
        lists.join(", ")
    )
}

/// Rows that are sent together.
struct Batch {
    columns: Vec<Values>,
    rows: u64,
    bytes: usize,
}

impl Batch {
    fn of(table: &Planned) -> Self {
        Self {
            columns: table.columns.iter().map(|it| Values::none_of(it.kind)).collect(),
            rows: 0,
            bytes: 0,
        }
    }

    fn take(&mut self, table: &Planned, row: &rusqlite::Row<'_>) -> Result<RowSum, CopyError> {
        let mut sum = RowSum::default();
        let mut place = 0;
        for (values, column) in self.columns.iter_mut().zip(&table.columns) {
            let pushed = match &column.from {
                From::Given(text) => values.push(text.as_str().into(), "", &mut sum),
                From::Process => values.push(row.get_ref(place)?, &format!("{CHAIN}/"), &mut sum),
                From::Source => values.push(row.get_ref(place)?, "", &mut sum),
            };
            if !matches!(column.from, From::Given(_)) {
                place += 1;
            }
            self.bytes += pushed.map_err(|expected| wrong(table, column, expected))?;
        }
        self.rows += 1;
        Ok(sum)
    }

    fn send(&mut self, link: &Link, insert: &str) -> Result<(), Trouble> {
        if self.rows == 0 {
            return Ok(());
        }
        let lists: Vec<_> = self.columns.iter().map(Values::as_list).collect();
        link.execute(insert, &lists)?;
        self.columns.iter_mut().for_each(Values::clear);
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }
}

fn wrong(table: &Planned, column: &Column, expected: &'static str) -> CopyError {
    CopyError::Value {
        table: table.table,
        column: column.name.clone(),
        expected,
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
