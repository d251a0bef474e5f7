-- Acts that are no commands, while they are done. Whoever does one stands here until its end is in the record.
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
    opened_at_ms BIGINT NOT NULL,
    process TEXT NOT NULL
);
