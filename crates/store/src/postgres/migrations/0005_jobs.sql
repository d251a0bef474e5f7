-- Agents at work. A row changes only together with its events, and only over the version that the change
-- was made from; `holder` is the process that looks after a job, with its last sign of life.
CREATE TABLE jobs (
    job_id TEXT PRIMARY KEY,
    version BIGINT NOT NULL,
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
    created_at_ms BIGINT NOT NULL,
    updated_at_ms BIGINT NOT NULL,
    started_at_ms BIGINT,
    ended_at_ms BIGINT,
    approval_count BIGINT NOT NULL,
    approval_ms BIGINT NOT NULL,
    remaining_ms BIGINT NOT NULL,
    clock_since_ms BIGINT,
    retries BIGINT NOT NULL,
    not_before_ms BIGINT,
    holder TEXT,
    seen_at_ms BIGINT,
    CHECK ((status IN ('pending', 'running')) = (ended_at_ms IS NULL)),
    arrival BIGINT GENERATED ALWAYS AS IDENTITY,
    CHECK ((holder IS NULL) = (seen_at_ms IS NULL))
);
CREATE INDEX jobs_by_creation ON jobs (created_at_ms);
CREATE INDEX jobs_of_an_owner ON jobs (owner, created_at_ms);
CREATE INDEX jobs_open ON jobs (created_at_ms) WHERE status IN ('pending', 'running');
CREATE INDEX jobs_of_a_session ON jobs (session_id, created_at_ms);

-- The arrows of `job/lifecycle.rs`, for whoever writes past it.
CREATE TRIGGER jobs_refuse_steps BEFORE UPDATE OF status ON jobs FOR EACH ROW
WHEN (NOT (OLD.status = NEW.status AND OLD.status IN ('pending', 'running')
    OR OLD.status = 'pending' AND NEW.status IN ('running', 'failed', 'cancelled', 'timeout')
    OR OLD.status = 'running' AND NEW.status IN ('completed', 'failed', 'cancelled', 'timeout')))
EXECUTE FUNCTION refuse('a job does not take this step');

-- What was asked, and by whom, never changes.
CREATE TRIGGER jobs_refuse_rewriting BEFORE UPDATE ON jobs FOR EACH ROW
WHEN (OLD.input <> NEW.input OR OLD.owner <> NEW.owner OR OLD.agent <> NEW.agent
    OR OLD.session_id <> NEW.session_id OR OLD.created_at_ms <> NEW.created_at_ms)
EXECUTE FUNCTION refuse('what a job is about does not change');

-- Conversations with agents, over one job or several.
CREATE TABLE job_sessions (
    session_id TEXT PRIMARY KEY,
    version BIGINT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('initializing', 'active', 'idle', 'recovering', 'terminated')),
    conversation_id TEXT UNIQUE,
    name TEXT NOT NULL,
    -- `<name>-<date>`: a name is unique on its day.
    folder TEXT NOT NULL UNIQUE,
    job_id TEXT NOT NULL,
    agent TEXT NOT NULL,
    owner TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    rollout TEXT,
    pid BIGINT,
    pid_started BIGINT,
    socket TEXT,
    config TEXT NOT NULL,
    -- The number of its events, and of those that its file is known to tell.
    last_seq BIGINT NOT NULL,
    filed_seq BIGINT NOT NULL
);
CREATE INDEX job_sessions_unfiled ON job_sessions (created_at_ms) WHERE filed_seq < last_seq;

CREATE TRIGGER job_sessions_refuse_steps BEFORE UPDATE OF status ON job_sessions FOR EACH ROW
WHEN (NOT (OLD.status = NEW.status AND OLD.status <> 'terminated'
    OR OLD.status IN ('initializing', 'idle', 'recovering') AND NEW.status = 'active'
    OR OLD.status = 'active' AND NEW.status = 'idle'
    OR OLD.status IN ('active', 'idle') AND NEW.status = 'recovering'
    OR OLD.status <> 'terminated' AND NEW.status = 'terminated'))
EXECUTE FUNCTION refuse('a session does not take this step');

-- What `events.jsonl` tells, in order and without a gap. The file is made from these.
CREATE TABLE job_events (
    session_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    event_id TEXT NOT NULL UNIQUE,
    timestamp_ms BIGINT NOT NULL,
    job_id TEXT NOT NULL,
    conversation_id TEXT,
    type TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (session_id, seq)
);
CREATE TRIGGER job_events_refuse_update BEFORE UPDATE ON job_events FOR EACH ROW
EXECUTE FUNCTION refuse('what an agent did is not changed');
CREATE FUNCTION job_events_refuse_delete() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM job_sessions WHERE job_sessions.session_id = OLD.session_id) THEN
        RAISE EXCEPTION 'what an agent did goes with its session only'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN OLD;
END
$$;
CREATE TRIGGER job_events_refuse_delete BEFORE DELETE ON job_events
    FOR EACH ROW EXECUTE FUNCTION job_events_refuse_delete();

-- What was used, as it came; the sum is the total.
CREATE TABLE token_usage (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id TEXT NOT NULL,
    job_id TEXT NOT NULL,
    model TEXT,
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    total_tokens BIGINT NOT NULL,
    cost_usd DOUBLE PRECISION,
    created_at_ms BIGINT NOT NULL
);
CREATE INDEX token_usage_of_a_session ON token_usage (session_id);
CREATE TRIGGER token_usage_refuse_update BEFORE UPDATE ON token_usage FOR EACH ROW
EXECUTE FUNCTION refuse('usage is only added to');
CREATE TRIGGER token_usage_refuse_delete BEFORE DELETE ON token_usage FOR EACH ROW
EXECUTE FUNCTION refuse('usage is only added to');

-- Processes of agents, written down before anything is said to them. One process may serve several sessions.
CREATE TABLE agent_processes (
    -- A process id means something on its node only.
    node TEXT NOT NULL,
    pid BIGINT NOT NULL,
    started BIGINT NOT NULL,
    session_id TEXT NOT NULL,
    job_id TEXT NOT NULL,
    agent TEXT NOT NULL,
    socket TEXT,
    created_at_ms BIGINT NOT NULL,
    PRIMARY KEY (node, pid, started, session_id)
);

-- Messages and interrupts on their way to a job, from whichever process they were said in.
CREATE TABLE job_notes (
    note_id TEXT PRIMARY KEY,
    job_id TEXT NOT NULL,
    errand TEXT NOT NULL CHECK (errand IN ('message', 'interrupt')),
    message TEXT NOT NULL,
    sent_by TEXT NOT NULL,
    sent_at_ms BIGINT NOT NULL,
    delivered BOOLEAN NOT NULL,
    arrival BIGINT GENERATED ALWAYS AS IDENTITY
);
CREATE INDEX job_notes_of_a_job ON job_notes (job_id, sent_at_ms);

-- A question about no command is found again by what it is about.
CREATE INDEX approvals_by_binding ON approvals (owner, binding) WHERE request_id IS NULL;
