//! How the database is, asked without changing it; and brought up to date by itself, before any node starts.

use std::collections::BTreeMap;
use std::time::Duration;

use super::address::Address;
use super::link::{Exchange, Link};
use super::migrations::{self, MigrateError};
use super::site::OpenError;
use super::snapshot;
use super::trouble::Trouble;
use crate::db::{ChainEnd, Condition, ConditionError, Migrated, NodeSeen};
use crate::{Options, hex};

/// Counting rows, or making an index over them, may take this long.
const PATIENCE: Duration = Duration::from_secs(3_600);

pub(crate) fn of(url: &str, options: &Options) -> Result<Condition, ConditionError> {
    let (_exchange, link) = connect(url, options).map_err(crate::OpenError::from)?;
    look(&link).map_err(|error| ConditionError::Read(error.into()))
}

pub(crate) fn reach(url: &str, options: &Options) -> Result<(), OpenError> {
    let (_exchange, link) = connect(url, options)?;
    migrations::version(&link)?;
    Ok(())
}

pub(crate) fn migrate(url: &str, options: &Options) -> Result<Migrated, OpenError> {
    let (_exchange, link) = connect(url, options)?;
    let from = migrations::version(&link)?;
    migrations::apply(&link)?;
    let to = migrations::STEPS.len();
    Ok(Migrated { from, to })
}

/// The exchange goes on for as long as it is held, and the connection with it.
fn connect(url: &str, options: &Options) -> Result<(Exchange, Link), OpenError> {
    let address = Address::of(url, options)?;
    let exchange = Exchange::start().map_err(|source| OpenError::Thread { source })?;
    let connected = exchange.connect(&address, PATIENCE);
    let link = connected.map_err(|source| OpenError::Connect { source })?;
    Ok((exchange, link))
}

fn look(link: &Link) -> Result<Condition, Trouble> {
    link.batch("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
    let bytes = link.query_one("SELECT pg_database_size(current_database())", &[])?;
    let version = match migrations::version(link) {
        Ok(version) => version,
        // A newer one is told of like any other.
        Err(MigrateError::Newer { found, .. }) => found,
        // Found out when the first step is to be applied.
        Err(MigrateError::Encoding { .. }) => 0,
        Err(MigrateError::Read { source } | MigrateError::Apply { source, .. }) => return Err(source),
    };
    let mut condition = Condition {
        version,
        known: migrations::STEPS.len(),
        bytes: bytes.try_get::<_, i64>(0)?.cast_unsigned(),
        tables: Vec::new(),
        chains: Vec::new(),
        nodes: Vec::new(),
        moved: None,
    };
    if version > 0 {
        condition.chains = chains(link)?;
        condition.nodes = nodes(link, &condition.chains)?;
        condition.tables = tables(link, &condition.chains)?;
    }
    link.batch("COMMIT")?;
    Ok(condition)
}

fn chains(link: &Link) -> Result<Vec<ChainEnd>, Trouble> {
    let sql = "SELECT chain, seq, hash, checkpointed, public_key FROM chain_heads ORDER BY chain";
    link.all(sql, &[], |row| {
        let chain: String = row.try_get(0)?;
        let key: Option<String> = row.try_get(4)?;
        Ok(ChainEnd {
            first_seq: snapshot::pruned(link, &chain, key.as_deref().unwrap_or_default())? + 1,
            chain,
            last_seq: row.try_get::<_, i64>(1)?.cast_unsigned(),
            hash: hex::encode(row.try_get(2)?),
            checkpointed: row.try_get::<_, i64>(3)?.cast_unsigned(),
            public_key: key,
        })
    })
}

/// Nodes that left a sign of life, and those that only left a chain.
fn nodes(link: &Link, chains: &[ChainEnd]) -> Result<Vec<NodeSeen>, Trouble> {
    let silent = |node: &str| NodeSeen {
        node: node.to_owned(),
        processes: 0,
        last_seen: None,
        silent_ms: None,
    };
    let mut nodes: BTreeMap<String, NodeSeen> = chains
        .iter()
        .map(|chain| (chain.chain.clone(), silent(&chain.chain)))
        .collect();
    let sql = "SELECT node, count(*), to_char(max(seen_at) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'),
             (extract(epoch FROM clock_timestamp() - max(seen_at)) * 1000)::bigint
         FROM processes GROUP BY node";
    for row in link.query(sql, &[])? {
        let node: String = row.try_get(0)?;
        let seen = NodeSeen {
            processes: row.try_get::<_, i64>(1)?.cast_unsigned(),
            last_seen: row.try_get(2)?,
            silent_ms: Some(row.try_get::<_, i64>(3)?.max(0).cast_unsigned()),
            ..silent(&node)
        };
        nodes.insert(node, seen);
    }
    Ok(nodes.into_values().collect())
}

fn tables(link: &Link, chains: &[ChainEnd]) -> Result<Vec<(String, u64)>, Trouble> {
    let sql = "SELECT table_name::text FROM information_schema.tables
         WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' ORDER BY table_name";
    let names = link.all(sql, &[], |row| Ok(row.try_get::<_, String>(0)?))?;
    let mut tables = Vec::new();
    for name in names {
        // Counting the long one takes minutes, and the chains know.
        let rows = if name == "flow_events" {
            chains
                .iter()
                .map(|it| (it.last_seq + 1).saturating_sub(it.first_seq))
                .sum()
        } else {
            let sql = format!("SELECT count(*) FROM \"{}\"", name.replace('"', "\"\""));
            link.query_one(&sql, &[])?.try_get::<_, i64>(0)?.cast_unsigned()
        };
        tables.push((name, rows));
    }
    Ok(tables)
}
