-- Agents at work. A row changes only together with its events, and only over the version that the change
-- was made from; `holder` is the process that looks after a job, with its last sign of life.
CREATE TABLE jobs (
    job_id TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('pending', 'running', 'completed', 'failed', 'cancelled', 'timeout')),
    sub_state TEXT CHECK (sub_state IN ('waiting_approval', 'interrupting', 'paused_limit', 'recovering')),
    request_id TEXT NOT NULL CHECK (request_id <> ''),
    correlation_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    conversation_id TEXT,
    agent TEXT NOT NULL,
    -- The credential that started it, and what the record calls its bearer.
    owner TEXT NOT NULL,
    actor_type TEXT NOT NULL,
    actor_id TEXT NOT NULL,
    run_id TEXT,
    input TEXT NOT NULL,
    result TEXT,
    error TEXT,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    started_at_ms INTEGER,
    ended_at_ms INTEGER,
    approval_count INTEGER NOT NULL,
    approval_ms INTEGER NOT NULL,
    remaining_ms INTEGER NOT NULL,
    clock_since_ms INTEGER,
    retries INTEGER NOT NULL,
    not_before_ms INTEGER,
    holder TEXT,
    seen_at_ms INTEGER,
    CHECK ((status IN ('pending', 'running')) = (ended_at_ms IS NULL)),
    CHECK ((holder IS NULL) = (seen_at_ms IS NULL))
) STRICT;
CREATE INDEX jobs_by_creation ON jobs (created_at_ms);
CREATE INDEX jobs_of_an_owner ON jobs (owner, created_at_ms);
CREATE INDEX jobs_open ON jobs (created_at_ms) WHERE status IN ('pending', 'running');
CREATE INDEX jobs_of_a_session ON jobs (session_id, created_at_ms);

-- The arrows of `job/lifecycle.rs`, for whoever writes past it.
CREATE TRIGGER jobs_refuse_steps BEFORE UPDATE OF status ON jobs
WHEN NOT (OLD.status = NEW.status AND OLD.status IN ('pending', 'running')
    OR OLD.status = 'pending' AND NEW.status IN ('running', 'failed', 'cancelled', 'timeout')
    OR OLD.status = 'running' AND NEW.status IN ('completed', 'failed', 'cancelled', 'timeout'))
BEGIN
    SELECT RAISE(ABORT, 'a job does not take this step');
END;

-- What was asked, and by whom, never changes.
CREATE TRIGGER jobs_refuse_rewriting BEFORE UPDATE ON jobs
WHEN OLD.input <> NEW.input OR OLD.owner <> NEW.owner OR OLD.agent <> NEW.agent
    OR OLD.session_id <> NEW.session_id OR OLD.created_at_ms <> NEW.created_at_ms
BEGIN
    SELECT RAISE(ABORT, 'what a job is about does not change');
END;

-- Conversations with agents, over one job or several.
CREATE TABLE job_sessions (
    session_id TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('initializing', 'active', 'idle', 'recovering', 'terminated')),
    conversation_id TEXT UNIQUE,
    name TEXT NOT NULL,
    -- `<name>-<date>`: a name is unique on its day.
    folder TEXT NOT NULL UNIQUE,
    job_id TEXT NOT NULL,
    agent TEXT NOT NULL,
    owner TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    rollout TEXT,
    pid INTEGER,
    pid_started INTEGER,
    socket TEXT,
    config TEXT NOT NULL,
    -- The number of its events, and of those that its file is known to tell.
    last_seq INTEGER NOT NULL,
    filed_seq INTEGER NOT NULL
) STRICT;
CREATE INDEX job_sessions_unfiled ON job_sessions (created_at_ms) WHERE filed_seq < last_seq;

CREATE TRIGGER job_sessions_refuse_steps BEFORE UPDATE OF status ON job_sessions
WHEN NOT (OLD.status = NEW.status AND OLD.status <> 'terminated'
    OR OLD.status IN ('initializing', 'idle', 'recovering') AND NEW.status = 'active'
    OR OLD.status = 'active' AND NEW.status = 'idle'
    OR OLD.status IN ('active', 'idle') AND NEW.status = 'recovering'
    OR OLD.status <> 'terminated' AND NEW.status = 'terminated')
BEGIN
    SELECT RAISE(ABORT, 'a session does not take this step');
END;

-- What `events.jsonl` tells, in order and without a gap. The file is made from these.
CREATE TABLE job_events (
    session_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    event_id TEXT NOT NULL UNIQUE,
    timestamp_ms INTEGER NOT NULL,
    job_id TEXT NOT NULL,
    conversation_id TEXT,
    type TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (session_id, seq)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER job_events_refuse_update BEFORE UPDATE ON job_events
BEGIN
    SELECT RAISE(ABORT, 'what an agent did is not changed');
END;
CREATE TRIGGER job_events_refuse_delete BEFORE DELETE ON job_events
WHEN EXISTS (SELECT 1 FROM job_sessions WHERE job_sessions.session_id = OLD.session_id)
BEGIN
    SELECT RAISE(ABORT, 'what an agent did goes with its session only');
END;

-- What was used, as it came; the sum is the total.
CREATE TABLE token_usage (
    id INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL,
    job_id TEXT NOT NULL,
    model TEXT,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    total_tokens INTEGER NOT NULL,
    cost_usd REAL,
    created_at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX token_usage_of_a_session ON token_usage (session_id);
CREATE TRIGGER token_usage_refuse_update BEFORE UPDATE ON token_usage
BEGIN
    SELECT RAISE(ABORT, 'usage is only added to');
END;
CREATE TRIGGER token_usage_refuse_delete BEFORE DELETE ON token_usage
BEGIN
    SELECT RAISE(ABORT, 'usage is only added to');
END;

-- Processes of agents, written down before anything is said to them. One process may serve several sessions.
CREATE TABLE agent_processes (
    pid INTEGER NOT NULL,
    started INTEGER NOT NULL,
    session_id TEXT NOT NULL,
    job_id TEXT NOT NULL,
    agent TEXT NOT NULL,
    socket TEXT,
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (pid, started, session_id)
) STRICT, WITHOUT ROWID;

-- Messages and interrupts on their way to a job, from whichever process they were said in.
CREATE TABLE job_notes (
    note_id TEXT PRIMARY KEY,
    job_id TEXT NOT NULL,
    errand TEXT NOT NULL CHECK (errand IN ('message', 'interrupt')),
    message TEXT NOT NULL,
    sent_by TEXT NOT NULL,
    sent_at_ms INTEGER NOT NULL,
    delivered INTEGER NOT NULL CHECK (delivered IN (0, 1))
) STRICT;
CREATE INDEX job_notes_of_a_job ON job_notes (job_id, sent_at_ms);

-- A question about no command is found again by what it is about.
CREATE INDEX approvals_by_binding ON approvals (owner, binding) WHERE request_id IS NULL;
