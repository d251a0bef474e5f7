//! The PostgreSQL server that `database.lifecycle` makes databases in.
//!
//! A connection is made for each act and goes with it: acts are rare, and nothing is held while nobody acts.
//! Statements that take no parameters are put together by the server itself (`format('%I', …)`), by its own
//! rules of quoting.
//!
//! A database is made under a name that nobody uses, marked by a comment, and then renamed. Renaming refuses a
//! name that is taken, and is one step: whatever carries the name carries the mark.
//!
//! Whoever acts under a mark holds a lock of the server's that goes with the connection, so that whoever puts right what
//! they left waits for a statement that is still at work.

mod tls;

use std::time::Duration;

use countersign_gateway::audit::Pending;
use countersign_gateway::tools::database::keeping::{DatabaseServer, Made, Seen, ServerError};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};

/// How long one act may take; copying a template is a matter of seconds.
const PATIENCE: Duration = Duration::from_secs(60);
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// A server, by its address.
#[derive(Clone)]
pub struct Server {
    config: Config,
}

impl Server {
    /// Takes `postgres://…`; nothing is connected yet. The address may hold a password, so it is not repeated
    /// in what is wrong with it.
    pub fn new(url: &str) -> Result<Self, ServerError> {
        let mut config: Config = url.parse().map_err(|_| {
            ServerError("the address is not one of PostgreSQL (postgres://user:password@host/database)".to_owned())
        })?;
        config.connect_timeout(CONNECT_PATIENCE).application_name("countersign");
        Ok(Self { config })
    }

    /// Does something on a connection of its own.
    fn with<T, F>(&self, work: impl FnOnce(Session) -> F + Send + 'static) -> Pending<Result<T, ServerError>>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>> + Send + 'static,
        T: Send + 'static,
    {
        let config = self.config.clone();
        Box::pin(async move {
            let done = tokio::time::timeout(PATIENCE, async {
                let session = Session::open(&config).await?;
                work(session).await.map_err(|error| spoken(&error))
            });
            done.await.unwrap_or_else(|_| {
                Err(ServerError(format!(
                    "it did not answer within {} s",
                    PATIENCE.as_secs()
                )))
            })
        })
    }
}

impl DatabaseServer for Server {
    fn look(&self, name: &str) -> Pending<Result<Seen, ServerError>> {
        let name = name.to_owned();
        self.with(|session| async move { session.look(&name).await })
    }

    fn create(&self, name: &str, mark: &str) -> Pending<Result<Made, ServerError>> {
        let (name, mark) = (name.to_owned(), mark.to_owned());
        self.with(|session| async move {
            session.hold(&mark).await?;
            let draft = draft(&mark);
            session.run("format('CREATE DATABASE %I', $1)", &[&draft]).await?;
            let comment = comment(&mark);
            session
                .run("format('COMMENT ON DATABASE %I IS %L', $1, $2)", &[&draft, &comment])
                .await?;
            let named = session
                .run("format('ALTER DATABASE %I RENAME TO %I', $1, $2)", &[&draft, &name])
                .await;
            match named {
                Ok(()) => Ok(Made::Now),
                Err(error) if error.code() == Some(&SqlState::DUPLICATE_DATABASE) => {
                    session.remove(&draft).await?;
                    Ok(Made::Taken)
                }
                Err(error) => Err(error),
            }
        })
    }

    fn delete(&self, name: &str, mark: &str) -> Pending<Result<(), ServerError>> {
        let (name, mark) = (name.to_owned(), mark.to_owned());
        self.with(|session| async move {
            session.hold(&mark).await?;
            let seen = session.look(&name).await?;
            // Checked once more on the connection that drops it.
            if seen.exists && seen.mark.as_deref() == Some(mark.as_str()) && !seen.is_reserved {
                session.remove(&name).await?;
            }
            Ok(())
        })
    }

    fn finished(&self, mark: &str) -> Pending<Result<(), ServerError>> {
        let mark = mark.to_owned();
        self.with(|session| async move { session.hold(&mark).await })
    }

    fn clear(&self, mark: &str) -> Pending<Result<(), ServerError>> {
        let draft = draft(mark);
        self.with(|session| async move { session.remove(&draft).await })
    }
}

/// A connection, and the task that drives it.
struct Session {
    client: Client,
    driver: tokio::task::JoinHandle<()>,
}

impl Session {
    async fn open(config: &Config) -> Result<Self, ServerError> {
        // What the address asks for; a server in the next room or on a socket needs no certificate.
        let (client, driver) = if config.get_ssl_mode() == SslMode::Require {
            let tls = tls::Tls::of_this_machine().await.map_err(ServerError)?;
            let connected = config.connect(tls).await.map_err(|error| spoken(&error))?;
            let (client, connection) = connected;
            (client, tokio::spawn(drive(connection)))
        } else {
            let (client, connection) = config.connect(NoTls).await.map_err(|error| spoken(&error))?;
            (client, tokio::spawn(drive(connection)))
        };
        Ok(Self { client, driver })
    }

    async fn look(&self, name: &str) -> Result<Seen, tokio_postgres::Error> {
        const LOOK: &str = "SELECT datistemplate OR datname = current_database() OR datname = 'postgres',
                shobj_description(oid, 'pg_database')
            FROM pg_database WHERE datname = $1";
        let row = self.client.query_opt(LOOK, &[&name]).await?;
        Ok(row.map_or_else(
            || Seen {
                // Not there now, and not to be made either.
                is_reserved: matches!(name, "postgres" | "template0" | "template1"),
                ..Seen::default()
            },
            |row| Seen {
                exists: true,
                is_reserved: row.get(0),
                mark: row.get::<_, Option<String>>(1).and_then(|text| marked(&text)),
            },
        ))
    }

    /// Waits until nobody else acts under a mark, and keeps others waiting until the server is done with this
    /// connection. That outlasts us: a statement goes on when we are gone.
    async fn hold(&self, mark: &str) -> Result<(), tokio_postgres::Error> {
        const HOLD: &str = "SELECT pg_advisory_lock(hashtextextended($1::text, 0))";
        self.client.query_one(HOLD, &[&draft(mark)]).await.map(drop)
    }

    /// Runs a statement that the server writes from these values.
    async fn run(&self, written: &str, values: &[&str]) -> Result<(), tokio_postgres::Error> {
        let casts = written.replace("$1", "$1::text").replace("$2", "$2::text");
        let values: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> = values
            .iter()
            .map(|value| value as &(dyn tokio_postgres::types::ToSql + Sync))
            .collect();
        let statement = self.client.query_one(&format!("SELECT {casts}"), &values).await?;
        self.client.batch_execute(statement.get(0)).await
    }

    async fn remove(&self, name: &str) -> Result<(), tokio_postgres::Error> {
        self.run("format('DROP DATABASE IF EXISTS %I', $1)", &[name]).await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

async fn drive<S, T>(connection: tokio_postgres::Connection<S, T>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection to the database server ended");
    }
}

/// The name of a database that has none yet.
fn draft(mark: &str) -> String {
    format!("countersign_{mark}")
}

fn comment(mark: &str) -> String {
    format!("made by Countersign, {mark}")
}

fn marked(comment: &str) -> Option<String> {
    comment.strip_prefix("made by Countersign, ").map(str::to_owned)
}

/// What the server said, without values that it may repeat.
fn spoken(error: &tokio_postgres::Error) -> ServerError {
    let text = match error.as_db_error() {
        Some(said) => format!("{} ({})", said.message(), said.code().code()),
        None => {
            let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
            format!("{error}{}", cause.unwrap_or_default())
        }
    };
    ServerError(text)
}
