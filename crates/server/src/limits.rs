//! Every bound of this edge, by name. A bound that users may set is a default here and a key under
//! `limits` in the configuration.

use std::time::Duration;

/// Bytes of one line on standard input (`limits.line_bytes`).
pub const LINE_BYTES_DEFAULT: usize = 16 << 20;
/// Arrays and objects inside one another in one message (`limits.depth`).
pub const DEPTH_DEFAULT: usize = 128;
/// Values in one message, those inside others too.
pub const VALUES_MAX: usize = 200_000;
/// Bytes of a request id that is text. Ids are remembered, so they may not be long.
pub const ID_BYTES_MAX: usize = 1_024;
/// Messages in one batch.
pub const BATCH_MAX: usize = 100;
/// Bytes of the answers to one batch, which wait for one another. Whatever is answered beyond them is not kept.
pub const BATCH_ANSWERS_BYTES_MAX: usize = 8 << 20;
/// Request ids a session remembers.
pub const IDS_REMEMBERED: usize = 1_024;
/// Bytes of ended calls' results a session keeps for duplicates.
pub const RESULTS_KEPT_BYTES: usize = 8 << 20;
/// Answers one connection may be waiting for; the gateway refuses earlier, with a better sentence.
pub const ANSWERS_AWAITED_MAX: usize = 1_024;
/// Refusals of one connection that may wait to be recorded; beyond that they are answered at once and counted.
pub const REFUSALS_AWAITED_MAX: usize = 2 * ANSWERS_AWAITED_MAX;
/// What is kept of a client's own name and version, and of what it says it can do.
pub const CLIENT_NAME_CHARS_MAX: usize = 256;
pub const CAPABILITIES_BYTES_MAX: usize = 4_096;
/// Bytes waiting to be written beyond which no further input is read and progress is dropped.
pub const OUTBOX_BYTES_MAX: usize = 1 << 20;
/// How long the last answers may take to leave once the connection ends.
pub const FLUSH_PATIENCE: Duration = Duration::from_secs(2);
/// How long a modern client may keep what it was told about tools and resources.
pub const CACHE_TTL: Duration = Duration::from_secs(60);
/// Lists of tools that are kept as they stand on the wire: one for each revision and kind of caller.
pub const LISTS_WRITTEN_MAX: usize = 32;
/// Questions one connection may have put to its client and not have answered yet.
pub const QUESTIONS_OPEN_MAX: usize = 16;
/// How long a client may take with a question.
pub const QUESTION_PATIENCE: Duration = Duration::from_secs(300);
/// What is kept of a client's reason not to answer.
pub const CLIENT_MESSAGE_CHARS_MAX: usize = 512;
/// Questions in one `input_required` answer.
pub const INPUT_REQUESTS_MAX: usize = 16;
/// How long a client may take with an `input_required` answer before it must begin anew.
pub const REQUEST_STATE_TTL: Duration = Duration::from_secs(600);
/// The same for one whose question is an approval: people take their time, and an approval lasts as long.
pub const APPROVAL_STATE_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// How often a modern client makes its call again while an approval is pending. The SDKs give up after ten
/// rounds with an error that says nothing; before that it is told.
pub const ROUNDS_MAX: u64 = 8;
/// Characters of one fact in the form that a client's user is shown.
pub const FORM_LINE_CHARS_MAX: usize = 2_000;
/// Bytes of what a `requestState` may hold.
pub const REQUEST_STATE_BYTES_MAX: usize = 16 << 10;
/// `requestState`s that wait to come back: of one credential, and of all. The oldest makes room.
pub const REQUEST_STATES_MAX_EACH: usize = 256;
pub const REQUEST_STATES_MAX: usize = 16_384;
/// Resources one client may subscribe to.
pub const SUBSCRIPTIONS_MAX: usize = 64;
/// Bytes of a resource's address.
pub const URI_BYTES_MAX: usize = 2_048;
/// Changes that a subscriber may be behind before it is told that anything may have changed.
pub const CHANGES_KEPT: usize = 64;
/// Values in one completion; the protocol's own bound.
pub const COMPLETIONS_MAX: usize = 100;
/// How long a command may take before a client that knows tasks is given one to poll.
pub const TASK_AFTER: Duration = Duration::from_secs(5);
/// How long a task can be asked for at least, and how often a client should.
pub const TASK_TTL: Duration = Duration::from_secs(24 * 60 * 60);
pub const TASK_POLL_EVERY: Duration = Duration::from_secs(2);

/// Bytes of one HTTP body (`limits.body_bytes`).
pub const BODY_BYTES_DEFAULT: usize = 4 << 20;
/// Sessions that are open at once (`limits.sessions_max`).
pub const SESSIONS_DEFAULT: usize = 100_000;
/// How long a session may be idle (`sessions.ttl_seconds`).
pub const SESSION_TTL_DEFAULT: Duration = Duration::from_secs(86_400);
/// Characters of a session id that a client may send.
pub const SESSION_ID_CHARS_MAX: usize = 128;
/// HTTP connections at once; one more is told to come back.
pub const CONNECTIONS_MAX: usize = 4_096;
/// The part of them that may be streams which only their client ends. The others are for those who ask and go: people who
/// decide, and calls.
pub const LASTING_STREAMS_OF_FOUR: usize = 3;
/// How long a connection may take to send the head of a request, and how long it may lie idle.
pub const HEAD_PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a request's head.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// How long the next piece of a body may take, and the whole of it.
pub const BODY_PIECE_PATIENCE: Duration = Duration::from_secs(10);
pub const BODY_PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of bodies whose end has not come yet, of all clients together.
pub const UNFINISHED_BYTES_MAX: usize = 256 << 20;
/// How long a client may take no bytes of a response before it is cut off.
pub const WRITE_PATIENCE: Duration = Duration::from_secs(60);
/// Bytes read beyond a request that is being answered, to see whether its client has gone.
pub const READ_AHEAD_BYTES_MAX: usize = 64 << 10;
/// Time between two attempts to tell a client that has gone from one that only sends no more.
pub const PROBE_EVERY: Duration = Duration::from_secs(1);
/// What is read and thrown away of a body that is too large, so that the client gets to read why.
pub const DISCARDED_BYTES_MAX: usize = 64 << 20;
pub const DISCARD_PATIENCE: Duration = Duration::from_secs(5);
/// A request that is not answered after this time is answered as a stream of events.
pub const STREAM_AFTER: Duration = Duration::from_secs(1);
/// Time between two signs of life on a silent stream.
pub const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);
/// What a client whose stream was cut is told to wait before it resumes.
pub const RETRY_AFTER: Duration = Duration::from_secs(3);
/// What a session keeps for clients that resume: events, bytes, and for how long. The newest event is
/// kept whatever its size.
pub const REPLAY_EVENTS_MAX: usize = 256;
pub const REPLAY_BYTES_MAX: usize = 4 << 20;
pub const REPLAY_AGE_MAX: Duration = Duration::from_secs(300);
/// What all sessions together keep for that; beyond it nothing is kept once it has left.
pub const REPLAY_BYTES_ALL_MAX: usize = 64 << 20;
/// Time between two writes of sessions' activity to the store.
pub const TOUCH_EVERY: Duration = Duration::from_secs(5);
/// Time between two looks for sessions whose token was revoked.
pub const REVOKED_EVERY: Duration = Duration::from_millis(500);
/// Longest time between two searches for expired sessions.
pub const EXPIRE_EVERY_MAX: Duration = Duration::from_secs(60);
/// A session that is idle for so long is kept by the store only.
pub const PUT_AWAY_AFTER: Duration = Duration::from_secs(300);
/// The part of the shutdown's grace that is left for ending command trees and closing streams.
pub const SHUTDOWN_TAIL: Duration = Duration::from_millis(2_500);
/// Refused credentials of one address are recorded together, once in this time.
pub const AUTH_REFUSALS_EVERY: Duration = Duration::from_secs(10);
/// Addresses whose refusals are counted apart; the others are counted together.
pub const AUTH_REFUSALS_ADDRESSES_MAX: usize = 256;
/// Credentials whose requests are counted at once.
pub const RATES_MAX: usize = 100_000;
/// What a list has when nobody says how much, and what it may have.
pub const LIST_DEFAULT: usize = 100;
pub const LIST_MAX: u64 = 1_000;
/// Bytes of the record in one answer; what is beyond comes with the next page.
pub const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Streams of events that are open at once to people, and as many to agents, beside those of sessions.
pub const EVENT_STREAMS_MAX: usize = 64;
/// Events that are read for a stream in one go.
pub const EVENTS_AT_ONCE: usize = 256;
/// Time between two looks of a stream for what other processes wrote, and at whether it may go on.
pub const EVENTS_LOOK_EVERY: Duration = Duration::from_secs(1);
/// The least time between two looks.
pub const EVENTS_PAUSE: Duration = Duration::from_millis(25);
/// Exports of the record at once: each keeps a thread.
pub const EXPORTS_MAX: usize = 2;
/// Pieces of a streamed answer that wait to be sent.
pub const PIECES_WAITING_MAX: usize = 8;
/// How long what a walk along the chain found answers for it while the record does not grow.
pub const PROOF_KEPT: Duration = Duration::from_secs(30);
/// What a login that failed makes its browser wait.
pub const LOGIN_PAUSE: Duration = Duration::from_millis(500);
/// Characters of a token or a login code that a page takes.
pub const TOKEN_CHARS_MAX: usize = 512;
/// Characters that a page of the console shows of one text.
pub const TEXT_CHARS_SHOWN: usize = 20_000;
/// Pages of the console that are kept up to date at once.
pub const LIVE_PAGES_MAX: usize = 128;

/// Bytes of what a form of the console sends: a word to an agent may be long.
pub const FORM_BYTES_MAX: usize = 1 << 20;
/// The same of the login, which anybody may send.
pub const LOGIN_BYTES_MAX: usize = 16 << 10;
/// Bytes of a callback.
pub const CALLBACK_BYTES_MAX: usize = 256 << 10;
