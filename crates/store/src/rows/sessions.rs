//! Sessions: what a row says, the requests they must know again, and the end of one whose process is gone.

use countersign_gateway::audit::event::{Actor, EventType};
use countersign_gateway::audit::{Asked, Change, SessionChange};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{CredentialId, IdSource, RequestId, SessionId};
use countersign_gateway::session::lifetime::{ClientInfo, KeptRequest, Session, SessionState, SessionStep};
use countersign_gateway::session::{Caller, Transport, desk};

use super::Cells;

/// The columns that [`session`] reads, in its order.
pub(crate) const COLUMNS: &str = "session_id, transport, state, client_name, client_version, protocol_version, \
     capabilities, credential, created_at_ms, last_activity_at_ms, reuses_ids";
/// How many sessions stand at each state.
pub(crate) const COUNT: &str = "SELECT state, count(*) FROM mcp_sessions GROUP BY state";

pub(crate) fn session<R: Cells>(row: &R) -> Result<Session, R::Error> {
    let transport = Transport::parse(&row.text(1)?).ok_or_else(|| R::damaged(1))?;
    let state = SessionState::parse(&row.text(2)?).ok_or_else(|| R::damaged(2))?;
    let caller = Caller {
        credential: CredentialId::trusted(row.text(7)?),
        ..Caller::anonymous_agent(transport)
    };
    let mut session = Session::new(SessionId::trusted(row.text(0)?), &caller, row.time(8)?).of(ClientInfo {
        name: row.any_text(3)?,
        version: row.any_text(4)?,
        protocol_version: row.any_text(5)?,
        capabilities: row.any_text(6)?,
        rpc_id: None,
    });
    session.last_activity_at = row.time(9)?;
    session.reuses_ids = row.flag(10)?;
    Ok(Session::restored(state, session))
}

/// A request that acted: its id, digest and command, when it came, and whether that waits for an answer.
pub(crate) fn request<R: Cells>(row: &R) -> Result<KeptRequest, R::Error> {
    Ok(KeptRequest {
        rpc_id: row.text(0)?,
        digest: row.bytes(1)?,
        command: row.any_text(2)?.map(RequestId::trusted),
        waits: row.flag(4)?,
    })
}

/// The three columns of a command that tell which request it came in.
pub(crate) fn asked(asked: Option<&Asked>) -> (Option<&str>, Option<&str>, Option<&[u8]>) {
    match asked {
        Some(Asked {
            session,
            rpc_id,
            digest,
        }) => (Some(session.as_str()), Some(rpc_id), Some(digest)),
        None => (None, None, None),
    }
}

/// The same three, read back from this column on.
pub(crate) fn read_asked<R: Cells>(row: &R, first: usize) -> Result<Option<Asked>, R::Error> {
    let Some(session) = row.any_text(first)? else {
        return Ok(None);
    };
    Ok(Some(Asked {
        session: SessionId::trusted(session),
        rpc_id: row.text(first + 1)?,
        digest: row.bytes(first + 2)?,
    }))
}

/// What [`COUNT`] found, with the states that no session stands at.
pub(crate) fn counts(found: &[(String, i64)]) -> Vec<(SessionState, usize)> {
    let of = |state: SessionState| {
        let found = found.iter().find(|(name, _)| name == state.as_str());
        found.map_or(0, |(_, count)| usize::try_from(*count).unwrap_or(usize::MAX))
    };
    SessionState::ALL.map(|state| (state, of(state))).to_vec()
}

/// Whether nobody can come back to a session of this transport once its process is gone.
pub(crate) fn dies_with_its_process(transport: Transport) -> bool {
    match transport {
        Transport::Stdio | Transport::Sse => true,
        Transport::StreamableHttp | Transport::Terminal | Transport::Rest | Transport::Console => false,
    }
}

/// The end of a session whose process is gone; none where it has ended already.
pub(crate) fn closing(session: Session, now: Timestamp, ids: &IdSource) -> Option<Change> {
    let from = session.state();
    let last_used = session.last_activity_at;
    let session = session.step(SessionStep::Close, last_used).ok()?;
    let actor = Actor::system("sweeper");
    Some(Change {
        events: vec![desk::event(EventType::SessionClosed, &session, actor, now, ids)],
        session: Some(SessionChange {
            session,
            from: Some(from),
        }),
        ..Change::default()
    })
}
