//! Where the database is, who this node is, and how a connection is set up: fixed at the start.

use std::io;
use std::path::Path;
use std::time::Duration;

use countersign_gateway::audit::chain::Hash;
use tokio::sync::watch;

use super::address::{Address, AddressError};
use super::ledger;
use super::link::{Exchange, Link};
use super::migrations::{self, MigrateError};
use super::node::{Node, NodeError};
use super::tls::TlsError;
use super::trouble::Trouble;
use crate::health::Health;
use crate::key::{Key, KeyError};
use crate::known::KnownEnd;
use crate::rows::Cells as _;
use crate::seal::{self, Sealer};
use crate::sqlite::site as state_directory;
use crate::witness::Witness;
use crate::{Options, random};

/// How much longer than for a lock an answer is waited for.
const ANSWER_MARGIN: Duration = Duration::from_secs(5);

pub(super) struct Site {
    pub(super) address: Address,
    pub(super) exchange: Exchange,
    pub(super) options: Options,
    pub(super) witness: Witness,
    pub(super) key: Key,
    pub(super) sealer: Sealer,
    pub(super) node: Node,
    /// What all nodes of the database derive their common secrets from. It signs nothing of the record.
    pub(super) shared: Key,
    /// What all nodes share by a file, so that the database does not know it.
    pub(super) guarded: Key,
    pub(super) known: KnownEnd,
    /// Counts what this process wrote.
    pub(super) written: watch::Sender<u64>,
    pub(super) health: Health,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Directory(#[from] state_directory::OpenError),
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("the connection to the database cannot be secured")]
    Tls(#[source] TlsError),
    #[error("the database cannot be opened")]
    Connect { source: Trouble },
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error("the writer of the record cannot be started")]
    Thread { source: io::Error },
    #[error("that the record is sealed cannot be noted in the state directory")]
    Mark { source: io::Error },
    #[error("the chain `{chain}` in the database is signed by another key than the one in the state directory")]
    OtherKey { chain: String },
}

impl Site {
    /// Prepares directory, key and database, and gives the connection that writes.
    pub(super) fn prepare(directory: &Path, url: &str, options: Options) -> Result<(Self, Link), OpenError> {
        state_directory::close_directory(directory)?;
        let address = Address::of(url, &options)?;
        let exchange = Exchange::start().map_err(|source| OpenError::Thread { source })?;
        let failed = |source| OpenError::Connect { source };
        let patience = options.busy_timeout + ANSWER_MARGIN;
        let link = exchange.connect(&address, patience).map_err(failed)?;
        migrations::apply(&link)?;
        let key = Key::load_or_create(directory)?;
        let node = Node::load_or_create(directory)?;
        let site = Self {
            address,
            exchange,
            guarded: key.guarded_by_file(directory)?,
            sealer: Sealer::new(&key, directory, Some(node.name())),
            key,
            node,
            shared: shared(&link).map_err(failed)?,
            known: KnownEnd::default(),
            written: watch::Sender::new(0),
            health: Health::default(),
            witness: Witness::new(options.witness.clone()),
            options,
        };
        site.enter(&link)?;
        Ok((site, link))
    }

    pub(super) fn connect(&self) -> Result<Link, Trouble> {
        let patience = self.health.patience(self.options.busy_timeout + ANSWER_MARGIN);
        self.exchange.connect(&self.address, patience)
    }

    /// Whoever follows the record looks again.
    pub(super) fn grew(&self, to: u64, hash: Hash) {
        self.known.is_now(to, hash);
        self.written.send_modify(|count| *count += 1);
    }

    /// Makes the node's chain known, with its key, and says that this process lives.
    fn enter(&self, link: &Link) -> Result<(), OpenError> {
        let failed = |source| OpenError::Connect { source };
        let (chain, key) = (self.node.name(), self.key.public());
        link.execute(
            "INSERT INTO chain_heads (chain, seq, hash, checkpointed, public_key)
             SELECT $1, 0, decode(repeat('00', 32), 'hex'), 0, $2
             WHERE NOT EXISTS (SELECT 1 FROM flow_events WHERE chain = $1) ON CONFLICT DO NOTHING",
            &[&chain, &key],
        )
        .map_err(failed)?;
        let kept = link
            .query_opt("SELECT public_key FROM chain_heads WHERE chain = $1", &[&chain])
            .map_err(failed)?;
        // A state directory whose key was replaced would sign what nobody believes. A head that was taken away is not
        // made anew: writing fails, and proving tells.
        if kept.is_some_and(|row| row.get::<_, &str>(0) != key) {
            let chain = chain.to_owned();
            return Err(OpenError::OtherKey { chain });
        }
        self.node.sign(link).map_err(failed)?;
        if self.options.seals && !self.sealer.is_expected() {
            self.seal_first(link).map_err(failed)?;
            self.sealer.expect().map_err(|source| OpenError::Mark { source })?;
        }
        Ok(())
    }

    /// Seals the head of a chain that has no seal yet.
    fn seal_first(&self, link: &Link) -> Result<(), Trouble> {
        let chain = self.node.name();
        let unsealed = "SELECT seq, hash FROM chain_heads WHERE chain = $1 AND seal IS NULL";
        while let Some(row) = link.query_opt(unsealed, &[&chain])? {
            let (seq, hash) = (row.try_get::<_, i64>(0)?, ledger::hash(&row, 1)?);
            let seal = self.sealer.seal(chain, seq.cast_unsigned(), &hash);
            // Unless a process of this node has gone on meanwhile.
            let sealed = link.execute(
                "UPDATE chain_heads SET seal = $2, sealed_seq = seq
                 WHERE chain = $1 AND seal IS NULL AND seq = $3 AND hash = $4",
                &[&chain, &seal.as_slice(), &seq, &hash.as_bytes().as_slice()],
            )?;
            if sealed > 0 {
                seal::tell_taken_over(seq.cast_unsigned());
            }
        }
        Ok(())
    }
}

/// The secret that all nodes share, made by the first of them.
fn shared(link: &Link) -> Result<Key, Trouble> {
    let made = random::secret().map_err(Trouble::Random)?;
    link.execute(
        "INSERT INTO shared_secret (is_only, secret) VALUES (true, $1) ON CONFLICT DO NOTHING",
        &[&made.as_slice()],
    )?;
    let kept = link.query_one("SELECT secret FROM shared_secret", &[])?;
    Ok(Key::from_seed(&kept.bytes(0)?))
}
