//! Every bound of this edge, by name. A bound that users may set is a default here and a key under
//! `limits` in the configuration.

use std::time::Duration;

/// Bytes of one line on standard input (`limits.line_bytes`).
pub const LINE_BYTES_DEFAULT: usize = 16 << 20;
/// Arrays and objects inside one another in one message (`limits.depth`).
pub const DEPTH_DEFAULT: usize = 128;
/// Bytes of a request id that is text. Ids are remembered, so they may not be long.
pub const ID_BYTES_MAX: usize = 1_024;
/// Messages in one batch.
pub const BATCH_MAX: usize = 100;
/// Request ids a session remembers.
pub const IDS_REMEMBERED: usize = 1_024;
/// Bytes of ended calls' results a session keeps for duplicates.
pub const RESULTS_KEPT_BYTES: usize = 8 << 20;
/// Answers one connection may be waiting for; the gateway refuses earlier, with a better sentence.
pub const ANSWERS_AWAITED_MAX: usize = 1_024;
/// Refusals of one connection that may wait to be recorded; beyond that they are answered at once.
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
