//! The statements of a writing transaction.
//!
//! Each node has a chain of its own. Its head is locked and read at the start of every transaction: the processes of one
//! node share a chain, nodes never wait for each other's. Events are linked in memory and written together, with the
//! head and the commit, at the end.

use countersign_gateway::audit::chain::{Hash, link};
use countersign_gateway::audit::event::Draft;
use countersign_gateway::audit::{CloseCommand, OpenCommand};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{CredentialId, RequestId};

use super::link::{CommitTrouble, Link};
use super::places;
use super::site::Site;
use super::snapshot;
use super::trouble::Trouble;
use crate::checkpoint::{self, Checkpoint, Kind, OtherHead};
use crate::known::Found;
use crate::rows::events::columns;
use crate::rows::{Cells as _, sessions};
use crate::seal::Seal;

/// Where the chain ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) seq: u64,
    pub(super) hash: Hash,
    /// Place of the last checkpoint.
    pub(super) checkpointed: u64,
}

/// A point of a transaction that it can go back to.
pub(super) struct Mark {
    head: Head,
    rows: usize,
    signed: usize,
}

pub(super) struct Ledger<'l> {
    pub(super) site: &'l Site,
    pub(super) link: &'l Link,
    head: Head,
    /// The transaction's own number, by which it can be asked for when the connection is lost.
    xid: String,
    rows: Rows,
    /// Checkpoints of the transaction under way.
    signed: Vec<Checkpoint>,
}

/// What this process wrote was acknowledged; an older copy does not have it.
fn prove_continued(link: &Link, site: &Site, head: Head) -> Result<(), Trouble> {
    let chain = site.node.name();
    let goes_on = match site.known.find(head.seq, head.hash) {
        Found::Continued => true,
        Found::SetBack => false,
        Found::If(seq, known) => {
            let at = "SELECT hash FROM flow_events WHERE chain = $1 AND seq = $2";
            match link.first(at, &[&chain, &seq.cast_signed()], |row| hash(row, 0))? {
                Some(found) => found == known,
                None => seq <= snapshot::pruned(link, chain, site.key.public())?,
            }
        }
    };
    if !goes_on {
        return Err(Trouble::SetBack);
    }
    site.known.is_now(head.seq, head.hash);
    Ok(())
}

/// Events to be written, a column each.
#[derive(Default)]
struct Rows {
    seq: Vec<i64>,
    event_id: Vec<String>,
    timestamp: Vec<String>,
    correlation_id: Vec<String>,
    actor_type: Vec<&'static str>,
    actor_id: Vec<String>,
    event_type: Vec<&'static str>,
    approval_state: Vec<Option<&'static str>>,
    payload: Vec<String>,
    prev_hash: Vec<Vec<u8>>,
    hash: Vec<Vec<u8>>,
}

impl Rows {
    fn truncate(&mut self, to: usize) {
        self.seq.truncate(to);
        self.event_id.truncate(to);
        self.timestamp.truncate(to);
        self.correlation_id.truncate(to);
        self.actor_type.truncate(to);
        self.actor_id.truncate(to);
        self.event_type.truncate(to);
        self.approval_state.truncate(to);
        self.payload.truncate(to);
        self.prev_hash.truncate(to);
        self.hash.truncate(to);
    }
}

const MOVE_HEAD: &str = "UPDATE chain_heads SET seq = $2, hash = $3, checkpointed = $4, seal = $5, sealed_seq = $2
     WHERE chain = $1";
const INSERT_EVENTS: &str = "INSERT INTO flow_events (chain, seq, event_id, timestamp, correlation_id, actor_type,
         actor_id, event_type, approval_state, payload, prev_hash, hash)
     SELECT $1, * FROM unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
         $9::text[], $10::text[], $11::bytea[], $12::bytea[])";
const INSERT_CHECKPOINT: &str = "INSERT INTO checkpoints (chain, seq, hash, timestamp, kind, public_key, signature,
         heads)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
const OTHER_HEADS: &str = "SELECT chain, seq, hash, public_key FROM chain_heads WHERE chain <> $1 AND seq > 0
     ORDER BY chain";
const OPEN_COMMAND: &str = "INSERT INTO open_commands (owner, request_id, digest, correlation_id, opened_at_ms,
         process, abandoned, session_id, rpc_id, rpc_digest)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING";
const HAS_ENDED: &str = "SELECT 1 FROM commands WHERE owner = $1 AND request_id = $2";
const OPENED_AS: &str = "SELECT digest, session_id, rpc_id, rpc_digest FROM open_commands
     WHERE owner = $1 AND request_id = $2 FOR UPDATE";
const CLOSE_COMMAND: &str = "INSERT INTO commands (owner, request_id, digest, correlation_id, opened_at_ms,
         closed_at_ms, result, stdout, stderr, session_id, rpc_id, rpc_digest)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING";
const WANT_END: &str = "UPDATE open_commands SET end_wanted = true WHERE owner = $1 AND request_id = $2";
const NO_LONGER_OPEN: &str = "DELETE FROM open_commands WHERE owner = $1 AND request_id = $2";
const IS_WRITTEN: &str = "SELECT 1 FROM flow_events WHERE correlation_id = $1 AND event_id = $2";
const FIND_EVENT: &str = "SELECT seq FROM flow_events
     WHERE correlation_id = $1 AND event_id = $2 AND event_type = $3 AND payload = $4";
/// What became of a transaction, by its number.
const BECAME: &str = "SELECT pg_xact_status($1::text::xid8)";

impl<'l> Ledger<'l> {
    /// Begins a transaction, with the chain in hand.
    pub(super) fn begin(link: &'l Link, site: &'l Site) -> Result<Self, Trouble> {
        let sql = format!(
            "SELECT seq, hash, checkpointed, pg_current_xact_id()::text, seal, {} FROM chain_heads WHERE chain = $1
                 FOR UPDATE",
            places::CLAIM
        );
        let rows = link.begin_with(&sql, &[&site.node.name()])?;
        let row = rows.first().ok_or(Trouble::NoRow)?;
        let head = Head {
            seq: row.try_get::<_, i64>(0)?.cast_unsigned(),
            hash: hash(row, 1)?,
            checkpointed: row.try_get::<_, i64>(2)?.cast_unsigned(),
        };
        // Whoever goes on behind rows of somebody else would seal and sign those too.
        let is_ours = |seal| site.sealer.is_sealed(site.node.name(), head.seq, &head.hash, &seal);
        if !seal(row, 4)?.is_some_and(is_ours) {
            return Err(Trouble::Unsealed);
        }
        prove_continued(link, site, head)?;
        Ok(Self {
            site,
            link,
            head,
            xid: row.try_get(3)?,
            rows: Rows::default(),
            signed: Vec::new(),
        })
    }

    pub(super) fn head(&self) -> Head {
        self.head
    }

    pub(super) fn now(&self) -> Timestamp {
        self.site.options.clock.now()
    }

    /// Who writes here.
    pub(super) fn process(&self) -> &'l str {
        self.site.node.process()
    }

    /// Ends the transaction; [`super::writer::commit`] also knows what to do when that goes wrong.
    pub(super) fn commit(self) -> Result<(), CommitTrouble> {
        let (chain, head) = (self.site.node.name(), self.head);
        let (seq, checkpointed) = (head.seq.cast_signed(), head.checkpointed.cast_signed());
        let end = head.hash.as_bytes().as_slice();
        let rows = &self.rows;
        let seal = self.site.sealer.seal(chain, head.seq, &head.hash);
        let seal = seal.as_slice();
        let moved = [&chain as _, &seq as _, &end as _, &checkpointed as _, &seal as _];
        let events = [
            &chain as _,
            &rows.seq as _,
            &rows.event_id as _,
            &rows.timestamp as _,
            &rows.correlation_id as _,
            &rows.actor_type as _,
            &rows.actor_id as _,
            &rows.event_type as _,
            &rows.approval_state as _,
            &rows.payload as _,
            &rows.prev_hash as _,
            &rows.hash as _,
        ];
        let is_longer = !rows.seq.is_empty();
        let inserted = is_longer.then_some((INSERT_EVENTS, &events[..]));
        let is_moved = is_longer || !self.signed.is_empty();
        let moved = is_moved.then_some((MOVE_HEAD, &moved[..]));
        self.link.commit_with([inserted, moved])
    }

    /// Checkpoints that become part of the record with this transaction.
    pub(super) fn signed(&self) -> Vec<Checkpoint> {
        self.signed.clone()
    }

    /// What is needed to find out what became of this transaction.
    pub(super) fn xid(&self) -> String {
        self.xid.clone()
    }

    pub(super) fn roll_back(self) {
        if let Err(error) = self.link.batch("ROLLBACK") {
            tracing::debug!(%error, "rollback failed");
        }
    }

    /// Marks a point to go back to.
    pub(super) fn save(&self) -> Result<Mark, Trouble> {
        self.link.batch("SAVEPOINT change")?;
        Ok(Mark {
            head: self.head,
            rows: self.rows.seq.len(),
            signed: self.signed.len(),
        })
    }

    pub(super) fn release(&self) -> Result<(), Trouble> {
        self.link.batch("RELEASE SAVEPOINT change")
    }

    /// Takes back what was written since [`Self::save`].
    pub(super) fn undo(&mut self, mark: &Mark) -> Result<(), Trouble> {
        self.link
            .batch("ROLLBACK TO SAVEPOINT change; RELEASE SAVEPOINT change")?;
        self.head = mark.head;
        self.rows.truncate(mark.rows);
        self.signed.truncate(mark.signed);
        Ok(())
    }

    /// Links one event behind the head.
    pub(super) fn append(&mut self, draft: &Draft, timestamp: &str) -> Result<(), Trouble> {
        let columns = columns(draft, self.site.node.name(), timestamp);
        let seq = self.head.seq + 1;
        let hash = link(&self.head.hash, seq, &columns);
        let rows = &mut self.rows;
        rows.seq.push(seq.cast_signed());
        rows.event_id.push(columns.event_id.to_owned());
        rows.timestamp.push(columns.timestamp.to_owned());
        rows.correlation_id.push(columns.correlation_id.to_owned());
        rows.actor_type.push(draft.actor.kind.as_str());
        rows.actor_id.push(columns.actor_id.to_owned());
        rows.event_type.push(draft.event_type.as_str());
        rows.approval_state
            .push(draft.approval_state.map(|state| state.as_str()));
        rows.payload.push(columns.payload.to_owned());
        rows.prev_hash.push(self.head.hash.as_bytes().to_vec());
        rows.hash.push(hash.as_bytes().to_vec());
        self.head.seq = seq;
        self.head.hash = hash;
        if checkpoint::is_due(self.head.checkpointed, seq) {
            self.checkpoint(Kind::Periodic)?;
        }
        Ok(())
    }

    /// Signs the chain as it stands at the head.
    pub(super) fn checkpoint(&mut self, kind: Kind) -> Result<(), Trouble> {
        self.sign_at(self.site.node.name(), self.head.seq, self.head.hash, kind)?;
        self.head.checkpointed = self.head.seq;
        Ok(())
    }

    /// Signs a chain of this node's key at some place, and where the others stand.
    pub(super) fn sign_at(&mut self, chain: &str, seq: u64, hash: Hash, kind: Kind) -> Result<(), Trouble> {
        let moment = self.site.options.clock.now().to_string();
        let heads = self.link.query(OTHER_HEADS, &[&chain])?;
        let heads = heads.iter().map(other_head).collect::<Result<Vec<_>, _>>()?;
        let signed = Checkpoint::sign_over(&self.site.key, kind, (chain, seq, hash), moment, heads);
        self.link.execute(
            INSERT_CHECKPOINT,
            &[
                &signed.chain,
                &signed.seq.cast_signed(),
                &signed.hash.as_bytes().as_slice(),
                &signed.timestamp,
                &signed.kind.as_str(),
                &signed.public_key,
                &signed.signature,
                &OtherHead::list_to_text(&signed.heads),
            ],
        )?;
        self.signed.push(signed);
        Ok(())
    }

    /// Says that checkpoints reach so far.
    pub(super) fn is_checkpointed(&mut self, seq: u64) {
        self.head.checkpointed = self.head.checkpointed.max(seq);
    }

    /// False when the owner has used the request id before.
    pub(super) fn open_command(&self, open: &OpenCommand) -> Result<bool, Trouble> {
        let (owner, request_id) = (open.owner.as_str(), open.request_id.as_str());
        let (session, rpc_id, rpc_digest) = sessions::asked(open.asked.as_ref());
        let rows = self.link.execute(
            OPEN_COMMAND,
            &[
                &owner,
                &request_id,
                &open.digest,
                &open.correlation_id.as_str(),
                &open.opened_at.as_millis(),
                &self.process(),
                &open.abandoned,
                &session,
                &rpc_id,
                &rpc_digest,
            ],
        )?;
        if rows == 0 {
            return Ok(false);
        }
        // Looked at afterwards: another node may just have moved it from one table to the other, and the insert
        // waited for that.
        if self.link.exists(HAS_ENDED, &[&owner, &request_id])? {
            self.link.execute(NO_LONGER_OPEN, &[&owner, &request_id])?;
            return Ok(false);
        }
        Ok(true)
    }

    /// The process that works on a command looks for this.
    pub(super) fn want_end(&self, owner: &CredentialId, request_id: &RequestId) -> Result<(), Trouble> {
        self.link
            .execute(WANT_END, &[&owner.as_str(), &request_id.as_str()])
            .map(drop)
    }

    /// False when the command had ended before: the first end stands. One of other content changes nothing
    /// either.
    pub(super) fn close_command(&self, close: &CloseCommand) -> Result<bool, Trouble> {
        let (owner, request_id) = (close.owner.as_str(), close.request_id.as_str());
        let opened = self.link.query_opt(OPENED_AS, &[&owner, &request_id])?;
        let asked = match opened {
            Some(row) if row.try_get::<_, String>(0)? != close.digest => return Ok(false),
            Some(row) => sessions::read_asked(&row, 1)?,
            None => None,
        };
        // Whoever goes on with a command that waited does not know the request that first asked for it.
        let (session, rpc_id, rpc_digest) = sessions::asked(close.asked.as_ref().or(asked.as_ref()));
        let rows = self.link.execute(
            CLOSE_COMMAND,
            &[
                &owner,
                &request_id,
                &close.digest,
                &close.correlation_id.as_str(),
                &close.opened_at.as_millis(),
                &self.site.options.clock.now().as_millis(),
                &close.result,
                &*close.stdout,
                &*close.stderr,
                &session,
                &rpc_id,
                &rpc_digest,
            ],
        )?;
        if rows == 0 {
            return Ok(false);
        }
        self.link.execute(NO_LONGER_OPEN, &[&owner, &request_id])?;
        Ok(true)
    }

    /// Whether an event of this call with this id is in the record, or about to be.
    pub(super) fn is_written(&self, draft: &Draft) -> Result<bool, Trouble> {
        let (call, event) = (draft.correlation_id.as_str(), draft.event_id.as_str());
        let is_waiting = self.rows.event_id.iter().any(|id| id == event);
        Ok(is_waiting || self.link.exists(IS_WRITTEN, &[&call, &event])?)
    }
}

/// The place of an event that is already in the record, word for word.
pub(super) fn find(link: &Link, draft: &Draft) -> Result<Option<u64>, Trouble> {
    let found = link.query_opt(
        FIND_EVENT,
        &[
            &draft.correlation_id.as_str(),
            &draft.event_id.as_str(),
            &draft.event_type.as_str(),
            &draft.payload(),
        ],
    )?;
    let seq = found.map(|row| row.try_get::<_, i64>(0)).transpose()?;
    Ok(seq.map(i64::cast_unsigned))
}

/// What became of a transaction whose connection was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Became {
    Committed,
    Undone,
    /// The server still works on it.
    UnderWay,
}

pub(super) fn became(link: &Link, xid: &str) -> Result<Became, Trouble> {
    let told = link.query_one(BECAME, &[&xid])?.try_get::<_, Option<String>>(0)?;
    Ok(match told.as_deref() {
        Some("committed") => Became::Committed,
        Some("in progress") => Became::UnderWay,
        Some(_) | None => Became::Undone,
    })
}

/// A hash as the database keeps it.
pub(super) fn hash(row: &tokio_postgres::Row, column: usize) -> Result<Hash, Trouble> {
    Ok(Hash::from_bytes(row.bytes(column)?))
}

/// The seal on a head, where there is one.
pub(super) fn seal(row: &tokio_postgres::Row, column: usize) -> Result<Option<Seal>, Trouble> {
    let is_there = row.try_get::<_, Option<&[u8]>>(column)?.is_some();
    is_there.then(|| row.bytes(column)).transpose()
}

fn other_head(row: &tokio_postgres::Row) -> Result<OtherHead, Trouble> {
    Ok(OtherHead {
        chain: row.try_get(0)?,
        seq: row.try_get::<_, i64>(1)?.cast_unsigned(),
        hash: hash(row, 2)?,
        public_key: row.try_get(3)?,
    })
}
