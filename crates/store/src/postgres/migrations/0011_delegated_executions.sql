-- Acts that services outside perform. A row is written with the opening of its act, before anything is sent,
-- and ends once: by an answer, by a callback, or by its deadline.
CREATE TABLE delegated_executions (
    delegation_id TEXT COLLATE "C" PRIMARY KEY,
    version BIGINT NOT NULL,
    correlation_id TEXT NOT NULL,
    -- The credential that asked, and what the same call is known by when it is made again.
    owner TEXT NOT NULL,
    binding TEXT NOT NULL,
    tool TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    deadline_ms BIGINT NOT NULL,
    -- Null until it has ended.
    outcome TEXT CHECK (outcome IN ('applied', 'failed', 'timeout')),
    -- The result as JSON, or the reason as text; free of secrets.
    detail TEXT,
    ended_at_ms BIGINT,
    -- Whether whoever asked has heard the end.
    told BOOLEAN NOT NULL,
    CHECK ((outcome IS NULL) = (ended_at_ms IS NULL))
);
CREATE INDEX delegated_executions_of_a_call ON delegated_executions (correlation_id, created_at_ms);
CREATE INDEX delegated_executions_untold ON delegated_executions (owner, binding) WHERE NOT told;
CREATE INDEX delegated_executions_open ON delegated_executions (deadline_ms) WHERE outcome IS NULL;
