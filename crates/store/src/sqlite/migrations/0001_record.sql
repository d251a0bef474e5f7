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

CREATE UNIQUE INDEX flow_events_by_event_id ON flow_events (event_id);
CREATE INDEX flow_events_by_timestamp ON flow_events (timestamp);
CREATE INDEX flow_events_by_correlation_id ON flow_events (correlation_id);
-- Every fourth event or so closes a command; the index is for the rare kinds.
CREATE INDEX flow_events_by_rare_type ON flow_events (event_type)
    WHERE event_type NOT IN
        ('command.received', 'command.validated', 'command.dispatched', 'command.completed');
-- One entry per command: its closing event carries the request id.
CREATE INDEX flow_events_by_request_id ON flow_events (payload ->> '$.request_id')
    WHERE event_type = 'command.completed';

CREATE TABLE chain_heads (
    chain TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL CHECK (length(hash) = 32),
    -- Where the last checkpoint stands, so that every writer knows when the next is due.
    checkpointed INTEGER NOT NULL
) STRICT;
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

CREATE TABLE commands (
    owner TEXT NOT NULL,
    request_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    opened_at_ms INTEGER NOT NULL,
    closed_at_ms INTEGER,
    -- The process that works on it while it is open.
    process TEXT,
    abandoned TEXT,
    result TEXT,
    stdout BLOB,
    stderr BLOB,
    PRIMARY KEY (owner, request_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX commands_open ON commands (opened_at_ms) WHERE result IS NULL;

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
    OR EXISTS (SELECT 1 FROM flow_events WHERE event_id = NEW.event_id)
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
