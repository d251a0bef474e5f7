-- Acts that are no commands and came in a request of a lasting session. The key lets one of several nodes do what
-- the request asks for; the outcome answers the same request when it comes again.
CREATE TABLE asked_acts (
    owner TEXT NOT NULL,
    request_id TEXT COLLATE "C" NOT NULL,
    act_id TEXT COLLATE "C" NOT NULL UNIQUE,
    -- What the session knows the request again by; empty where the client's id is too long to be remembered.
    session_id TEXT,
    rpc_id TEXT,
    rpc_digest BYTEA,
    opened_at_ms BIGINT NOT NULL,
    -- Null until it has ended.
    closed_at_ms BIGINT,
    outcome TEXT,
    PRIMARY KEY (owner, request_id),
    CHECK ((outcome IS NULL) = (closed_at_ms IS NULL))
);
CREATE INDEX asked_acts_of_a_session ON asked_acts (session_id, opened_at_ms) WHERE session_id IS NOT NULL;
CREATE INDEX asked_acts_ended ON asked_acts (closed_at_ms) WHERE closed_at_ms IS NOT NULL;
