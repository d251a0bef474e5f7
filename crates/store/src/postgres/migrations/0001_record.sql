-- The record. One chain per node, so that nodes do not wait for each other; `place` is the order in which all of
-- them are read. Text is compared byte by byte, whatever language the database was made for.
CREATE SEQUENCE flow_places;

CREATE TABLE flow_events (
    chain TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    event_id TEXT COLLATE "C" NOT NULL,
    timestamp TEXT COLLATE "C" NOT NULL,
    correlation_id TEXT COLLATE "C" NOT NULL,
    actor_type TEXT NOT NULL,
    actor_id TEXT NOT NULL,
    event_type TEXT COLLATE "C" NOT NULL,
    approval_state TEXT,
    payload TEXT NOT NULL,
    prev_hash BYTEA NOT NULL CHECK (length(prev_hash) = 32),
    hash BYTEA NOT NULL CHECK (length(hash) = 32),
    place BIGINT NOT NULL DEFAULT nextval('flow_places'),
    -- A second writer of a chain is refused by this key.
    PRIMARY KEY (chain, seq)
);

-- A member of a payload as text. A payload that is no JSON has none: it is damage, which proving tells of, and must
-- not end a question about other rows. PostgreSQL cannot read an escaped NUL, which commands do print. Not safe in
-- parallel: whoever catches an error begins a transaction within, which is refused there.
CREATE FUNCTION payload_text(payload TEXT, name TEXT) RETURNS TEXT
LANGUAGE plpgsql IMMUTABLE PARALLEL UNSAFE AS $$
BEGIN
    RETURN payload::json ->> name;
EXCEPTION WHEN OTHERS THEN
    BEGIN
        RETURN replace(payload, '\u0000', '')::json ->> name;
    EXCEPTION WHEN OTHERS THEN
        RETURN NULL;
    END;
END
$$;

CREATE UNIQUE INDEX flow_events_by_place ON flow_events (place);
-- A change that comes twice is refused by this one.
CREATE UNIQUE INDEX flow_events_by_correlation_id ON flow_events (correlation_id, event_id);
CREATE INDEX flow_events_by_timestamp ON flow_events (timestamp);
CREATE INDEX flow_events_by_rare_type ON flow_events (event_type, place)
    WHERE event_type <> 'command.received' AND event_type <> 'command.validated'
        AND event_type <> 'command.dispatched' AND event_type <> 'command.completed';
CREATE INDEX flow_events_by_request_id ON flow_events (payload_text(payload, 'request_id'))
    WHERE event_type = 'command.completed';

CREATE TABLE chain_heads (
    chain TEXT COLLATE "C" PRIMARY KEY,
    seq BIGINT NOT NULL,
    hash BYTEA NOT NULL CHECK (length(hash) = 32),
    -- Where the last checkpoint stands, so that every writer knows when the next is due.
    checkpointed BIGINT NOT NULL,
    -- The key of the node whose chain it is, in hexadecimal.
    public_key TEXT NOT NULL
);

CREATE TABLE checkpoints (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    chain TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    hash BYTEA NOT NULL CHECK (length(hash) = 32),
    timestamp TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('periodic', 'stop', 'prune')),
    public_key TEXT NOT NULL,
    signature TEXT NOT NULL,
    -- Where the other chains ended, as JSON; signed with the rest.
    heads TEXT NOT NULL DEFAULT '[]'
);
CREATE INDEX checkpoints_by_kind ON checkpoints (chain, kind, seq);

-- Processes of all nodes, each with its last sign of life by the database's own clock.
CREATE TABLE processes (
    process TEXT PRIMARY KEY,
    node TEXT NOT NULL,
    seen_at TIMESTAMPTZ NOT NULL
);

-- One secret that all nodes derive what they share from, such as the seal on what clients carry between them.
CREATE TABLE shared_secret (
    is_only BOOLEAN PRIMARY KEY CHECK (is_only),
    secret BYTEA NOT NULL CHECK (length(secret) = 32)
);

CREATE TABLE open_commands (
    owner TEXT NOT NULL,
    request_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    correlation_id TEXT COLLATE "C" NOT NULL,
    opened_at_ms BIGINT NOT NULL,
    -- The process that works on it.
    process TEXT NOT NULL,
    abandoned TEXT NOT NULL,
    PRIMARY KEY (owner, request_id)
);

-- Commands that have ended. A request id is in one of the two tables only.
CREATE TABLE commands (
    owner TEXT NOT NULL,
    request_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    correlation_id TEXT COLLATE "C" NOT NULL,
    opened_at_ms BIGINT NOT NULL,
    closed_at_ms BIGINT NOT NULL,
    result TEXT NOT NULL,
    stdout BYTEA NOT NULL,
    stderr BYTEA NOT NULL,
    PRIMARY KEY (owner, request_id)
);
CREATE INDEX commands_by_end ON commands (closed_at_ms);

CREATE FUNCTION refuse() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation';
END
$$;

CREATE TRIGGER flow_events_refuse_update BEFORE UPDATE ON flow_events
    FOR EACH ROW EXECUTE FUNCTION refuse('flow_events is append-only');
CREATE TRIGGER flow_events_refuse_truncate BEFORE TRUNCATE ON flow_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('flow_events is append-only');

CREATE FUNCTION flow_events_refuse_delete() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.seq > coalesce((SELECT max(seq) FROM checkpoints WHERE kind = 'prune' AND chain = OLD.chain), 0) THEN
        RAISE EXCEPTION 'flow_events is append-only' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN OLD;
END
$$;
CREATE TRIGGER flow_events_refuse_delete BEFORE DELETE ON flow_events
    FOR EACH ROW EXECUTE FUNCTION flow_events_refuse_delete();

CREATE TRIGGER checkpoints_refuse_update BEFORE UPDATE ON checkpoints
    FOR EACH ROW EXECUTE FUNCTION refuse('checkpoints are append-only');
CREATE TRIGGER checkpoints_refuse_truncate BEFORE TRUNCATE ON checkpoints
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('checkpoints are append-only');

CREATE FUNCTION checkpoints_refuse_delete() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.seq >= coalesce((SELECT max(seq) FROM checkpoints WHERE kind = 'prune' AND chain = OLD.chain), 0) THEN
        RAISE EXCEPTION 'checkpoints are append-only' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN OLD;
END
$$;
CREATE TRIGGER checkpoints_refuse_delete BEFORE DELETE ON checkpoints
    FOR EACH ROW EXECUTE FUNCTION checkpoints_refuse_delete();
