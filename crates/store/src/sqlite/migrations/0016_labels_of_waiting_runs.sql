-- What set a run off, and whose it is, never changes. The other labels of its issue may, for as long as it waits: its agent
-- is told of them when it begins.
DROP TRIGGER runs_refuse_rewriting;
CREATE TRIGGER runs_refuse_rewriting BEFORE UPDATE ON runs
WHEN OLD.correlation_id <> NEW.correlation_id OR OLD.agent_key <> NEW.agent_key
    OR OLD.labels <> NEW.labels AND OLD.status <> 'pending'
    OR OLD.trigger_kind <> NEW.trigger_kind OR OLD.trigger_label IS NOT NEW.trigger_label
    OR OLD.repository IS NOT NEW.repository OR OLD.issue_number IS NOT NEW.issue_number
    OR OLD.runtime <> NEW.runtime OR OLD.project IS NOT NEW.project OR OLD.created_at_ms <> NEW.created_at_ms
BEGIN
    SELECT RAISE(ABORT, 'what a run is about does not change');
END;
