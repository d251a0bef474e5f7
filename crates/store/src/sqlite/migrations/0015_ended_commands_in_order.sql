-- Ended commands in the order of their ends. Whole rows in a tree that sorts by request id, a hash most times, had five
-- to a page: every second end split one and wrote the pages around it. The key leads with the request id and so finds a
-- command by that alone, with its events: an index over their payloads is a page in every commit that is not needed.
ALTER TABLE commands RENAME TO commands_by_key;
DROP INDEX commands_of_a_session;
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
    session_id TEXT,
    rpc_id TEXT,
    rpc_digest BLOB
) STRICT;
INSERT INTO commands (owner, request_id, digest, correlation_id, opened_at_ms, closed_at_ms, result, stdout, stderr,
        session_id, rpc_id, rpc_digest)
    SELECT owner, request_id, digest, correlation_id, opened_at_ms, closed_at_ms, result, stdout, stderr,
        session_id, rpc_id, rpc_digest
    FROM commands_by_key ORDER BY closed_at_ms;
DROP TABLE commands_by_key;
CREATE UNIQUE INDEX commands_by_request_id ON commands (request_id, owner);
CREATE INDEX commands_of_a_session ON commands (session_id, opened_at_ms) WHERE session_id IS NOT NULL;
DROP INDEX flow_events_by_request_id;
