-- Sessions of clients. The record knows a session by `mark`; the id itself, which opens it, stays here.
CREATE TABLE mcp_sessions (
    session_id TEXT PRIMARY KEY,
    mark TEXT NOT NULL UNIQUE,
    transport TEXT NOT NULL CHECK (transport IN ('stdio', 'streamable-http', 'sse')),
    state TEXT NOT NULL CHECK (state IN ('created', 'initialized', 'closed', 'expired')),
    client_name TEXT,
    client_version TEXT,
    protocol_version TEXT,
    capabilities TEXT,
    credential TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    last_activity_at_ms BIGINT NOT NULL CHECK (last_activity_at_ms >= created_at_ms),
    reuses_ids BOOLEAN NOT NULL,
    -- The process it lives and dies with, while it is open; none for a session that outlives processes.
    process TEXT,
    -- The order in which rows came, among those of one moment.
    arrival BIGINT GENERATED ALWAYS AS IDENTITY
);
CREATE INDEX mcp_sessions_by_creation ON mcp_sessions (created_at_ms, arrival);
CREATE INDEX mcp_sessions_idle ON mcp_sessions (last_activity_at_ms)
    WHERE state IN ('created', 'initialized') AND process IS NULL;
CREATE INDEX mcp_sessions_ended ON mcp_sessions (last_activity_at_ms) WHERE state IN ('closed', 'expired');
CREATE INDEX mcp_sessions_of_a_process ON mcp_sessions (process) WHERE process IS NOT NULL;

-- The arrows of `session/lifetime.rs`, for whoever writes past it.
CREATE TRIGGER mcp_sessions_refuse_steps BEFORE UPDATE OF state ON mcp_sessions FOR EACH ROW
WHEN (NOT (OLD.state = 'created' AND NEW.state IN ('initialized', 'closed', 'expired')
    OR OLD.state = 'initialized' AND NEW.state IN ('closed', 'expired')))
EXECUTE FUNCTION refuse('a session does not take this step');

-- The request of a lasting session that a command came in. Others leave all three empty.
ALTER TABLE open_commands ADD COLUMN session_id TEXT;
ALTER TABLE open_commands ADD COLUMN rpc_id TEXT;
ALTER TABLE open_commands ADD COLUMN rpc_digest BYTEA;
ALTER TABLE commands ADD COLUMN session_id TEXT;
ALTER TABLE commands ADD COLUMN rpc_id TEXT;
ALTER TABLE commands ADD COLUMN rpc_digest BYTEA;
CREATE INDEX commands_of_a_session ON commands (session_id, opened_at_ms) WHERE session_id IS NOT NULL;

CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    role TEXT NOT NULL CHECK (role IN ('agent', 'operator', 'approver', 'viewer')),
    name TEXT NOT NULL,
    -- SHA-256 of the token, which itself is kept nowhere.
    digest BYTEA NOT NULL UNIQUE CHECK (length(digest) = 32),
    created_at_ms BIGINT NOT NULL,
    revoked_at_ms BIGINT,
    run TEXT,
    arrival BIGINT GENERATED ALWAYS AS IDENTITY
);
CREATE UNIQUE INDEX tokens_in_force ON tokens (name) WHERE revoked_at_ms IS NULL;

-- A token is what it was made as until it is revoked, and revoked for good.
CREATE TRIGGER tokens_refuse_change BEFORE UPDATE ON tokens FOR EACH ROW
WHEN (OLD.revoked_at_ms IS NOT NULL OR NEW.id <> OLD.id OR NEW.role <> OLD.role OR NEW.name <> OLD.name
    OR NEW.digest <> OLD.digest OR NEW.run IS DISTINCT FROM OLD.run)
EXECUTE FUNCTION refuse('a token can only be revoked');

-- Counts every change of a token, so that whoever keeps a copy knows at a glance when it is old.
CREATE TABLE tokens_version (version BIGINT NOT NULL);
INSERT INTO tokens_version VALUES (0);
CREATE FUNCTION tokens_changed() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tokens_version SET version = version + 1;
    RETURN NULL;
END
$$;
CREATE TRIGGER tokens_changed AFTER INSERT OR UPDATE OR DELETE ON tokens
    FOR EACH STATEMENT EXECUTE FUNCTION tokens_changed();
