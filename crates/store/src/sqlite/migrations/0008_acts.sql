-- Acts that are no commands and have not ended. A row lives from before the act is done until its end is in
-- the record; one whose process is gone is ended by the sweeper.
CREATE TABLE open_acts (
    -- The event that opened it.
    act_id TEXT PRIMARY KEY,
    correlation_id TEXT NOT NULL,
    actor_type TEXT NOT NULL,
    actor_id TEXT NOT NULL,
    tool TEXT NOT NULL,
    action TEXT,
    -- One approval lets one act go.
    approval_id TEXT UNIQUE,
    run_id TEXT,
    -- Those that have not told how it went there, as a JSON list.
    systems TEXT NOT NULL,
    opened_at_ms INTEGER NOT NULL,
    process TEXT NOT NULL
) STRICT;

-- S4: which project a database belongs to. The row is written before the database is made, and goes after it.
CREATE TABLE project_databases (
    database_name TEXT PRIMARY KEY,
    project_id TEXT NOT NULL,
    environment TEXT NOT NULL CHECK (environment <> ''),
    hold TEXT NOT NULL CHECK (hold IN ('creating', 'owned', 'deleting')),
    -- The database carries the same.
    mark TEXT NOT NULL,
    version INTEGER NOT NULL,
    -- The act that last touched it.
    act_id TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL
) STRICT;
