-- What set a run off, and whose it is, never changes. The other labels of its issue may, for as long as it waits: its agent
-- is told of them when it begins.
DROP TRIGGER runs_refuse_rewriting ON runs;
CREATE TRIGGER runs_refuse_rewriting BEFORE UPDATE ON runs FOR EACH ROW
WHEN (OLD.correlation_id <> NEW.correlation_id OR OLD.agent_key <> NEW.agent_key
    OR OLD.labels <> NEW.labels AND OLD.status <> 'pending'
    OR OLD.trigger_kind <> NEW.trigger_kind OR OLD.trigger_label IS DISTINCT FROM NEW.trigger_label
    OR OLD.repository IS DISTINCT FROM NEW.repository OR OLD.issue_number IS DISTINCT FROM NEW.issue_number
    OR OLD.runtime <> NEW.runtime OR OLD.project IS DISTINCT FROM NEW.project
    OR OLD.created_at_ms <> NEW.created_at_ms)
EXECUTE FUNCTION refuse('what a run is about does not change');
