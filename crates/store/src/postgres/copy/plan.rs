//! What is copied, table by table: a list of all tables of a record, and where each column goes.
//!
//! Columns are those of the two catalogs. A table or a column of the file that says something and has no place in the
//! database ends the copy; nothing is left behind without a word.

use std::collections::BTreeMap;

use super::CopyError;
use super::value::Kind;
use crate::postgres::link::Link;
use crate::postgres::trouble::Trouble;
use crate::sqlite::source::Source;

/// How a table is copied.
struct Rule {
    table: &'static str,
    /// A column that names a process. In a database such a name begins with its node.
    process: Option<&'static str>,
    /// A column that only a database has.
    given: Option<(&'static str, Given)>,
}

#[derive(Clone, Copy)]
enum Given {
    PublicKey,
    Node,
}

const fn table(table: &'static str) -> Rule {
    Rule {
        table,
        process: None,
        given: None,
    }
}

const fn of_processes(table: &'static str, column: &'static str) -> Rule {
    Rule {
        table,
        process: Some(column),
        given: None,
    }
}

const fn with(table: &'static str, column: &'static str, given: Given) -> Rule {
    Rule {
        table,
        process: None,
        given: Some((column, given)),
    }
}

/// In this order, because some point at others.
const RULES: &[Rule] = &[
    table("flow_events"),
    table("checkpoints"),
    with("chain_heads", "public_key", Given::PublicKey),
    of_processes("open_commands", "process"),
    table("commands"),
    of_processes("mcp_sessions", "process"),
    table("tokens"),
    table("logins"),
    table("approvals"),
    of_processes("jobs", "holder"),
    table("job_sessions"),
    table("job_events"),
    table("token_usage"),
    with("agent_processes", "node", Given::Node),
    table("job_notes"),
    table("runs"),
    table("links"),
    table("agent_sessions"),
    table("webhook_deliveries"),
    table("run_messages"),
    of_processes("open_acts", "process"),
    table("asked_acts"),
    table("project_databases"),
    table("secret_syncs"),
    table("delegated_executions"),
];

/// Tables that hold nothing to keep: an index over the rows of a file, a counter that only has to change, and names
/// held for moments by processes of which none is left.
const LEFT: &[&str] = &["spans", "tokens_version", "leases"];

/// Tables of a database that may have rows before anything was written: its version, and what nodes leave by starting.
const NOT_CONTENT: &[&str] = &[
    "schema_version",
    "shared_secret",
    "nodes_key",
    "tokens_version",
    "processes",
];

pub(super) struct Plan {
    pub(super) tables: Vec<Planned>,
    /// Tables of the database that must be empty.
    pub(super) content: Vec<String>,
}

pub(super) struct Planned {
    pub(super) table: &'static str,
    pub(super) columns: Vec<Column>,
    /// Columns that the database numbers by itself, and must go on behind the copied ones.
    pub(super) numbered: Vec<String>,
    pub(super) rows: u64,
}

pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) from: From,
}

pub(super) enum From {
    /// The column of the same name.
    Source,
    /// The same, behind the node's name.
    Process,
    Given(String),
}

/// A column as the database's catalog tells of it.
struct Target {
    kind: Option<Kind>,
    is_numbered: bool,
    /// Whether a row may leave it out.
    is_optional: bool,
}

type Catalog = BTreeMap<String, BTreeMap<String, Target>>;

/// What the node's columns are filled with.
pub(super) struct Names<'a> {
    pub(super) node: &'a str,
    pub(super) public_key: &'a str,
}

impl Plan {
    pub(super) fn make(source: &Source, link: &Link, names: &Names<'_>) -> Result<Self, CopyError> {
        let catalog = catalog(link)?;
        let known = |name: &str| RULES.iter().any(|rule| rule.table == name) || LEFT.contains(&name);
        let here = source.tables()?;
        for table in here.iter().filter(|name| !known(name)) {
            if source.count(table)? > 0 {
                return Err(CopyError::no_place(table, None));
            }
        }
        let mut tables = Vec::new();
        for rule in RULES.iter().filter(|rule| here.iter().any(|name| name == rule.table)) {
            let rows = source.count(rule.table)?;
            match catalog.get(rule.table) {
                Some(target) => tables.push(planned(source, rule, rows, target, names)?),
                None if rows > 0 => return Err(CopyError::no_place(rule.table, None)),
                None => {}
            }
        }
        let content = catalog.into_keys().filter(|name| !NOT_CONTENT.contains(&name.as_str()));
        Ok(Self {
            tables,
            content: content.collect(),
        })
    }
}

fn planned(
    source: &Source,
    rule: &Rule,
    rows: u64,
    target: &BTreeMap<String, Target>,
    names: &Names<'_>,
) -> Result<Planned, CopyError> {
    let mut planned = Planned {
        table: rule.table,
        columns: Vec::new(),
        numbered: Vec::new(),
        rows,
    };
    let here = source.columns(rule.table)?;
    for name in &here {
        let Some(column) = target.get(name) else {
            if source.is_used(rule.table, name)? {
                return Err(CopyError::no_place(rule.table, Some(name)));
            }
            continue;
        };
        let kind = column.kind.ok_or_else(|| CopyError::no_place(rule.table, Some(name)))?;
        let from = if rule.process == Some(name) {
            From::Process
        } else {
            From::Source
        };
        if column.is_numbered {
            planned.numbered.push(name.clone());
        }
        let name = name.clone();
        planned.columns.push(Column { name, kind, from });
    }
    for (name, column) in target.iter().filter(|(name, _)| !here.contains(name)) {
        let given = rule.given.filter(|(given, _)| given == name);
        let value = match given {
            Some((_, Given::PublicKey)) => names.public_key,
            Some((_, Given::Node)) => names.node,
            None if column.is_optional => continue,
            None => return Err(CopyError::no_place(rule.table, Some(name))),
        };
        planned.columns.push(Column {
            name: name.clone(),
            kind: Kind::Text,
            from: From::Given(value.to_owned()),
        });
    }
    Ok(planned)
}

fn catalog(link: &Link) -> Result<Catalog, Trouble> {
    let sql = "SELECT table_name::text, column_name::text, data_type::text, is_identity = 'YES',
             is_nullable = 'YES' OR column_default IS NOT NULL OR is_identity = 'YES'
         FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
         WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'";
    let mut catalog = Catalog::new();
    for row in link.query(sql, &[])? {
        let target = Target {
            kind: Kind::named(row.try_get(2)?),
            is_numbered: row.try_get(3)?,
            is_optional: row.try_get(4)?,
        };
        let columns = catalog.entry(row.try_get(0)?).or_default();
        columns.insert(row.try_get(1)?, target);
    }
    Ok(catalog)
}
