-- The record. One chain per database, so `seq` is the row id: appends go to the end of the tree and
-- long payloads stay in the leaf. Hashes are 32 raw bytes; exports print them in hexadecimal.
CREATE TABLE flow_events (
    chain TEXT NOT NULL,
    seq INTEGER PRIMARY KEY,
    event_id TEXT NOT NULL,
    timestamp TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    actor_type TEXT NOT NULL,
    actor_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    approval_state TEXT,
    payload TEXT NOT NULL,
    prev_hash BLOB NOT NULL CHECK (length(prev_hash) = 32),
    hash BLOB NOT NULL CHECK (length(hash) = 32)
) STRICT;

-- Each index is one more page in every commit, so there is none on `event_id` (a call's events are found by
-- its correlation) and none on `timestamp` (see `spans`).
CREATE INDEX flow_events_by_correlation_id ON flow_events (correlation_id);
-- Every fourth event or so closes a command; the index is for the rare kinds. Not `NOT IN`: SQLite would make a
-- table of such a list for every insert.
CREATE INDEX flow_events_by_rare_type ON flow_events (event_type)
    WHERE event_type <> 'command.received' AND event_type <> 'command.validated'
        AND event_type <> 'command.dispatched' AND event_type <> 'command.completed';
-- One entry per command: its closing event carries the request id.
CREATE INDEX flow_events_by_request_id ON flow_events (payload ->> '$.request_id')
    WHERE event_type = 'command.completed';

-- Which moments a stretch of rows covers: one entry per 512 rows, up to and with `last_seq`. Rows come in the
-- order of their moments almost always, so this leads to a time range nearly as well as an index would.
CREATE TABLE spans (
    last_seq INTEGER PRIMARY KEY,
    earliest TEXT NOT NULL,
    latest TEXT NOT NULL
) STRICT;

CREATE TABLE chain_heads (
    chain TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL CHECK (length(hash) = 32),
    -- Where the last checkpoint stands, so that every writer knows when the next is due.
    checkpointed INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO chain_heads VALUES ('main', 0, zeroblob(32), 0);

CREATE TABLE checkpoints (
    id INTEGER PRIMARY KEY,
    chain TEXT NOT NULL,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL CHECK (length(hash) = 32),
    timestamp TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('periodic', 'stop', 'prune')),
    public_key TEXT NOT NULL,
    signature TEXT NOT NULL
) STRICT;
CREATE INDEX checkpoints_by_kind ON checkpoints (kind, seq);

-- Commands that have not ended. Few at any time: a table of their own is a page or two, where an index over
-- the open ones among all commands would be written twice per command.
CREATE TABLE open_commands (
    owner TEXT NOT NULL,
    request_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    opened_at_ms INTEGER NOT NULL,
    -- The process that works on it.
    process TEXT NOT NULL,
    abandoned TEXT NOT NULL,
    PRIMARY KEY (owner, request_id)
) STRICT, WITHOUT ROWID;

-- Commands that have ended. A request id is in one of the two tables only.
CREATE TABLE commands (
    owner TEXT NOT NULL,
    request_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    opened_at_ms INTEGER NOT NULL,
    closed_at_ms INTEGER NOT NULL,
    result TEXT NOT NULL,
    stdout BLOB NOT NULL,
    stderr BLOB NOT NULL,
    PRIMARY KEY (owner, request_id)
) STRICT, WITHOUT ROWID;

-- The triggers are for everybody else: the writer appends and does nothing else, and goes without them (see
-- `Site::connect_writer`), because an insert with a trigger copies every page that it touches.
CREATE TRIGGER flow_events_refuse_update BEFORE UPDATE ON flow_events
BEGIN
    SELECT RAISE(ABORT, 'flow_events is append-only');
END;

CREATE TRIGGER flow_events_refuse_delete BEFORE DELETE ON flow_events
WHEN OLD.seq > coalesce((SELECT max(seq) FROM checkpoints WHERE kind = 'prune'), 0)
BEGIN
    SELECT RAISE(ABORT, 'flow_events is append-only');
END;

-- INSERT OR REPLACE deletes without firing a delete trigger.
CREATE TRIGGER flow_events_refuse_replace BEFORE INSERT ON flow_events
WHEN NEW.seq <= (SELECT max(seq) FROM flow_events)
    OR EXISTS (SELECT 1 FROM flow_events
               WHERE correlation_id = NEW.correlation_id AND event_id = NEW.event_id)
BEGIN
    SELECT RAISE(ABORT, 'flow_events is append-only');
END;

CREATE TRIGGER checkpoints_refuse_update BEFORE UPDATE ON checkpoints
BEGIN
    SELECT RAISE(ABORT, 'checkpoints are append-only');
END;

CREATE TRIGGER checkpoints_refuse_delete BEFORE DELETE ON checkpoints
WHEN OLD.seq >= coalesce((SELECT max(seq) FROM checkpoints WHERE kind = 'prune'), 0)
BEGIN
    SELECT RAISE(ABORT, 'checkpoints are append-only');
END;
