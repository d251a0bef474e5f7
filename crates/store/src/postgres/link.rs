//! One connection to the database, used from threads that may wait.
//!
//! The library underneath is asynchronous; the store's work is a sequence of questions, asked from the writer's thread
//! or from threads for blocking work. So a thread of its own moves the bytes of all connections ([`Exchange`]), and
//! whoever asks waits for the answer. Nothing waits for ever: a connection that does not answer in its time is lost.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use super::address::Address;
use super::trouble::Trouble;

/// Statements that a connection keeps prepared.
const STATEMENTS_KEPT: usize = 256;

pub(super) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The thread that moves the bytes of all connections.
pub(super) struct Exchange {
    handle: Handle,
    _stop: oneshot::Sender<()>,
}

impl Exchange {
    pub(super) fn start() -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        thread::Builder::new()
            .name("record-exchange".to_owned())
            .spawn(move || {
                // Ends when the sender is gone.
                let _ = runtime.block_on(stopped);
            })?;
        Ok(Self { handle, _stop: stop })
    }

    /// Lets something run beside the connections, for as long as there are any.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(work);
    }

    pub(super) fn connect(&self, address: &Address, patience: Duration) -> Result<Link, Trouble> {
        let (config, tls) = (address.config.clone(), address.tls.clone());
        let (answer, connected) = oneshot::channel();
        self.handle.spawn(async move {
            match config.connect(tls).await {
                Ok((client, connection)) => {
                    let _ = answer.send(Ok(client));
                    if let Err(error) = connection.await {
                        tracing::debug!(%error, "a connection to the database ended");
                    }
                }
                Err(error) => drop(answer.send(Err(error))),
            }
        });
        let client = wait(connected, patience)?.map_err(|_| Trouble::Stopped)??;
        Ok(Link {
            client,
            patience,
            prepared: Mutex::default(),
        })
    }
}

pub(super) struct Link {
    client: Client,
    patience: Duration,
    prepared: Mutex<HashMap<String, Statement>>,
}

impl Link {
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Several statements without values.
    pub(super) fn batch(&self, statements: &str) -> Result<(), Trouble> {
        Ok(wait(self.client.batch_execute(statements), self.patience)??)
    }

    pub(super) fn query(&self, sql: &str, values: Values<'_>) -> Result<Vec<Row>, Trouble> {
        let statement = self.prepare(sql)?;
        Ok(wait(self.client.query(&statement, values), self.patience)??)
    }

    /// Asks a question that is put together for once: it is not kept, and planned for the very texts that it names. A
    /// statement that is kept is soon planned for all values alike, and a rare one is then looked for everywhere.
    pub(super) fn query_once(&self, sql: &str, texts: &[String]) -> Result<Vec<Row>, Trouble> {
        let values: Vec<_> = texts.iter().map(|text| (text as _, Type::TEXT)).collect();
        Ok(wait(self.client.query_typed(sql, &values), self.patience)??)
    }

    /// The rows of an answer, each read as something.
    pub(super) fn all<T>(
        &self,
        sql: &str,
        values: Values<'_>,
        read: impl FnMut(&Row) -> Result<T, Trouble>,
    ) -> Result<Vec<T>, Trouble> {
        self.query(sql, values)?.iter().map(read).collect()
    }

    pub(super) fn first<T>(
        &self,
        sql: &str,
        values: Values<'_>,
        read: impl FnOnce(&Row) -> Result<T, Trouble>,
    ) -> Result<Option<T>, Trouble> {
        self.query_opt(sql, values)?.as_ref().map(read).transpose()
    }

    pub(super) fn query_opt(&self, sql: &str, values: Values<'_>) -> Result<Option<Row>, Trouble> {
        Ok(self.query(sql, values)?.into_iter().next())
    }

    pub(super) fn query_one(&self, sql: &str, values: Values<'_>) -> Result<Row, Trouble> {
        self.query_opt(sql, values)?.ok_or(Trouble::NoRow)
    }

    pub(super) fn exists(&self, sql: &str, values: Values<'_>) -> Result<bool, Trouble> {
        Ok(self.query_opt(sql, values)?.is_some())
    }

    /// The number of rows that a statement changed.
    pub(super) fn execute(&self, sql: &str, values: Values<'_>) -> Result<u64, Trouble> {
        let statement = self.prepare(sql)?;
        Ok(wait(self.client.execute(&statement, values), self.patience)??)
    }

    /// Begins a transaction and asks its first question, in one way there and back.
    pub(super) fn begin_with(&self, sql: &str, values: Values<'_>) -> Result<Vec<Row>, Trouble> {
        let statement = self.prepare(sql)?;
        let both = async {
            let begun = self.client.batch_execute("BEGIN");
            let asked = self.client.query(&statement, values);
            tokio::join!(begun, asked)
        };
        let (begun, asked) = wait(both, self.patience)?;
        begun?;
        Ok(asked?)
    }

    /// The last two statements of a transaction and its commit, in one way there and back. An error of the commit
    /// itself is told apart: what became of the transaction is then not known.
    pub(super) fn commit_with(&self, last: [Option<(&str, Values<'_>)>; 2]) -> Result<(), CommitTrouble> {
        let [first, second] = last;
        let first = self.prepared(first).map_err(CommitTrouble::Before)?;
        let second = self.prepared(second).map_err(CommitTrouble::Before)?;
        // All are sent, in this order, before the first is waited for.
        let all = async {
            let committed = self.client.batch_execute("COMMIT");
            tokio::join!(self.perhaps(first), self.perhaps(second), committed)
        };
        let (first, second, committed) = wait(all, self.patience).map_err(CommitTrouble::Unknown)?;
        for outcome in [first.map(drop), second.map(drop), committed] {
            outcome.map_err(|error| match Trouble::from(error) {
                error if error.is_lost() => CommitTrouble::Unknown(error),
                // A statement that was refused has undone the transaction, whatever the commit says.
                error => CommitTrouble::Before(error),
            })?;
        }
        Ok(())
    }

    fn prepared<'v>(&self, asked: Option<(&str, Values<'v>)>) -> Result<Option<(Statement, Values<'v>)>, Trouble> {
        asked.map(|(sql, values)| Ok((self.prepare(sql)?, values))).transpose()
    }

    async fn perhaps(&self, asked: Option<(Statement, Values<'_>)>) -> Result<u64, tokio_postgres::Error> {
        match asked {
            Some((statement, values)) => self.client.execute(&statement, values).await,
            None => Ok(0),
        }
    }

    fn prepare(&self, sql: &str) -> Result<Statement, Trouble> {
        if let Some(statement) = self.lock().get(sql) {
            return Ok(statement.clone());
        }
        let statement = wait(self.client.prepare(sql), self.patience)??;
        let mut prepared = self.lock();
        if prepared.len() >= STATEMENTS_KEPT {
            prepared.clear();
        }
        prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Statement>> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a transaction did not end well.
pub(super) enum CommitTrouble {
    /// It was undone.
    Before(Trouble),
    /// The connection was lost while it was being committed.
    Unknown(Trouble),
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits on this thread, whatever it is.
fn wait<F: Future>(future: F, patience: Duration) -> Result<F::Output, Trouble> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let deadline = Instant::now() + patience;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Ok(output);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Trouble::TimedOut);
        }
        thread::park_timeout(left);
    }
}
