-- S4: which project a database belongs to. The row is written before the database is made, and goes after it.
CREATE TABLE project_databases (
    database_name TEXT COLLATE "C" PRIMARY KEY,
    project_id TEXT NOT NULL,
    environment TEXT NOT NULL CHECK (environment <> ''),
    hold TEXT NOT NULL CHECK (hold IN ('creating', 'owned', 'deleting')),
    -- The database carries the same.
    mark TEXT NOT NULL,
    version BIGINT NOT NULL,
    -- The act that last touched it.
    act_id TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    updated_at_ms BIGINT NOT NULL
);

-- Secrets on their way to two systems, and what an idempotency key was used for. A value is here only until
-- both have it, and only sealed.
CREATE TABLE secret_syncs (
    sync_id TEXT COLLATE "C" PRIMARY KEY,
    version BIGINT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'left', 'applied', 'given-up')),
    project_id TEXT NOT NULL,
    idempotency_key TEXT,
    digest TEXT NOT NULL,
    repository TEXT NOT NULL,
    environment TEXT NOT NULL,
    github_scope TEXT NOT NULL CHECK (github_scope IN ('environment', 'repository')),
    github_secret TEXT NOT NULL,
    namespace TEXT NOT NULL,
    kubernetes_secret TEXT NOT NULL,
    kubernetes_key TEXT NOT NULL,
    policy TEXT NOT NULL CHECK (policy IN ('deterministic', 'random', 'provided')),
    sealed_value BYTEA,
    at_github BOOLEAN NOT NULL,
    at_kubernetes BOOLEAN NOT NULL,
    act_id TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    approval_id TEXT,
    created_at_ms BIGINT NOT NULL,
    updated_at_ms BIGINT NOT NULL,
    CHECK (sealed_value IS NULL OR state IN ('open', 'left'))
);

CREATE UNIQUE INDEX secret_syncs_by_key ON secret_syncs (project_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL AND state <> 'given-up';
-- One at a time writes a Kubernetes Secret: what one applies must not take away what another just did.
CREATE UNIQUE INDEX secret_syncs_under_way ON secret_syncs (namespace, kubernetes_secret) WHERE state = 'open';
CREATE INDEX secret_syncs_unfinished ON secret_syncs (updated_at_ms) WHERE state IN ('open', 'left');
