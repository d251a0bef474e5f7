-- Runs: work that a label, a review or a person set off. A row changes only together with its events, and
-- only over the version that the change was made from.
CREATE TABLE runs (
    run_id TEXT COLLATE "C" PRIMARY KEY,
    version BIGINT NOT NULL,
    correlation_id TEXT NOT NULL UNIQUE,
    project TEXT,
    repository TEXT,
    agent_key TEXT NOT NULL,
    trigger_kind TEXT NOT NULL CHECK (trigger_kind IN ('label', 'review', 'manual')),
    trigger_label TEXT,
    runtime TEXT NOT NULL CHECK (runtime IN ('full-env', 'code-only')),
    namespace TEXT,
    issue_number BIGINT CHECK (issue_number > 0),
    pull_request_number BIGINT CHECK (pull_request_number > 0),
    labels TEXT NOT NULL,
    title TEXT,
    instructions TEXT,
    requested_by TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('pending', 'running', 'succeeded', 'failed', 'cancelled')),
    wait_state TEXT CHECK (wait_state IN ('owner_review', 'mcp', 'backpressure')),
    -- What was left of its time when its clock last began or stopped to run, and since when it runs.
    remaining_ms BIGINT NOT NULL,
    clock_since_ms BIGINT,
    reported_status TEXT,
    reason TEXT,
    job_id TEXT UNIQUE,
    created_at_ms BIGINT NOT NULL,
    updated_at_ms BIGINT NOT NULL,
    started_at_ms BIGINT,
    finished_at_ms BIGINT,
    arrival BIGINT GENERATED ALWAYS AS IDENTITY,
    CHECK ((status IN ('pending', 'running')) = (finished_at_ms IS NULL)),
    CHECK (issue_number IS NULL OR repository IS NOT NULL),
    CHECK (wait_state IS NULL OR status = 'running')
);

-- One run of an issue is under way; others wait, one of each label.
CREATE UNIQUE INDEX runs_under_way ON runs (repository, issue_number)
    WHERE status = 'running' AND issue_number IS NOT NULL;
CREATE UNIQUE INDEX runs_that_wait ON runs (repository, issue_number, coalesce(trigger_label, ''))
    WHERE status = 'pending' AND issue_number IS NOT NULL;
CREATE INDEX runs_by_creation ON runs (created_at_ms);
CREATE INDEX runs_open ON runs (created_at_ms) WHERE status IN ('pending', 'running');
CREATE INDEX runs_of_an_issue ON runs (repository, issue_number, created_at_ms);
CREATE INDEX runs_of_a_pull_request ON runs (repository, pull_request_number, created_at_ms)
    WHERE pull_request_number IS NOT NULL;

-- The arrows of `run/lifecycle.rs`, for whoever writes past it.
CREATE TRIGGER runs_refuse_steps BEFORE UPDATE OF status ON runs FOR EACH ROW
WHEN (NOT (OLD.status = NEW.status AND OLD.status IN ('pending', 'running')
    OR OLD.status = 'pending' AND NEW.status IN ('running', 'failed', 'cancelled')
    OR OLD.status = 'running' AND NEW.status IN ('succeeded', 'failed', 'cancelled')))
EXECUTE FUNCTION refuse('a run does not take this step');

-- What set a run off, and whose it is, never changes.
CREATE TRIGGER runs_refuse_rewriting BEFORE UPDATE ON runs FOR EACH ROW
WHEN (OLD.correlation_id <> NEW.correlation_id OR OLD.agent_key <> NEW.agent_key OR OLD.labels <> NEW.labels
    OR OLD.trigger_kind <> NEW.trigger_kind OR OLD.trigger_label IS DISTINCT FROM NEW.trigger_label
    OR OLD.repository IS DISTINCT FROM NEW.repository OR OLD.issue_number IS DISTINCT FROM NEW.issue_number
    OR OLD.runtime <> NEW.runtime OR OLD.project IS DISTINCT FROM NEW.project
    OR OLD.created_at_ms <> NEW.created_at_ms)
EXECUTE FUNCTION refuse('what a run is about does not change');

-- What belongs together: issues, pull requests, runs, sessions, documents.
CREATE TABLE links (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source_type TEXT NOT NULL CHECK (source_type IN ('issue', 'pr', 'run', 'session', 'doc', 'adr')),
    source_id TEXT NOT NULL,
    target_type TEXT NOT NULL CHECK (target_type IN ('issue', 'pr', 'run', 'session', 'doc', 'adr')),
    target_id TEXT NOT NULL,
    link_type TEXT NOT NULL CHECK (link_type IN ('references', 'implements', 'supersedes')),
    metadata TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    UNIQUE (source_type, source_id, target_type, target_id, link_type)
);
CREATE INDEX links_by_target ON links (target_type, target_id);
CREATE TRIGGER links_refuse_update BEFORE UPDATE ON links FOR EACH ROW
EXECUTE FUNCTION refuse('links are only added to');
CREATE TRIGGER links_refuse_delete BEFORE DELETE ON links FOR EACH ROW
EXECUTE FUNCTION refuse('links are only added to');
CREATE TRIGGER links_refuse_truncate BEFORE TRUNCATE ON links FOR EACH STATEMENT
EXECUTE FUNCTION refuse('links are only added to');

-- The agents that do the work of runs, written with every change of a run's job.
CREATE TABLE agent_sessions (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id TEXT COLLATE "C" NOT NULL UNIQUE,
    correlation_id TEXT NOT NULL,
    project_id TEXT,
    repository_full_name TEXT,
    issue_number BIGINT,
    branch_name TEXT,
    pr_number BIGINT,
    pr_url TEXT,
    trigger_kind TEXT NOT NULL,
    template_kind TEXT,
    template_source TEXT,
    template_locale TEXT,
    model TEXT,
    reasoning_effort TEXT,
    agent_key TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('running', 'succeeded', 'failed', 'cancelled', 'failed_precondition')),
    -- The agent's own id of the conversation.
    session_id TEXT,
    session_json TEXT NOT NULL,
    codex_cli_session_path TEXT,
    -- The events that the snapshot covers, and a digest over all of them in order.
    snapshot_version BIGINT NOT NULL,
    snapshot_checksum TEXT,
    snapshot_updated_at_ms BIGINT,
    wait_state TEXT CHECK (wait_state IN ('owner_review', 'mcp', 'backpressure')),
    timeout_guard_disabled BOOLEAN NOT NULL,
    last_heartbeat_at_ms BIGINT,
    started_at_ms BIGINT,
    finished_at_ms BIGINT,
    created_at_ms BIGINT NOT NULL,
    updated_at_ms BIGINT NOT NULL
);

CREATE INDEX jobs_of_a_run ON jobs (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX approvals_of_a_run ON approvals (run_id) WHERE state = 'pending' AND run_id IS NOT NULL;

-- A token may end by itself; one of a run always does.
ALTER TABLE tokens ADD COLUMN expires_at_ms BIGINT;
DROP TRIGGER tokens_refuse_change ON tokens;
CREATE TRIGGER tokens_refuse_change BEFORE UPDATE ON tokens FOR EACH ROW
WHEN (OLD.revoked_at_ms IS NOT NULL OR NEW.id <> OLD.id OR NEW.role <> OLD.role OR NEW.name <> OLD.name
    OR NEW.digest <> OLD.digest OR NEW.run IS DISTINCT FROM OLD.run
    OR NEW.expires_at_ms IS DISTINCT FROM OLD.expires_at_ms)
EXECUTE FUNCTION refuse('a token can only be revoked');
CREATE INDEX tokens_of_a_run ON tokens (run) WHERE run IS NOT NULL AND revoked_at_ms IS NULL;
