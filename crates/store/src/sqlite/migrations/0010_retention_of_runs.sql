-- What belongs together is only added to, until the runs that it belongs to are gone themselves.
DROP TRIGGER links_refuse_delete;
CREATE TRIGGER links_refuse_delete BEFORE DELETE ON links
WHEN OLD.source_type = 'run' AND EXISTS (SELECT 1 FROM runs WHERE run_id = OLD.source_id)
    OR OLD.target_type = 'run' AND EXISTS (SELECT 1 FROM runs WHERE run_id = OLD.target_id)
    OR EXISTS (SELECT 1 FROM links AS of_run JOIN runs ON runs.run_id = of_run.source_id
        WHERE of_run.source_type = 'run' AND of_run.target_type = OLD.source_type
            AND of_run.target_id = OLD.source_id AND of_run.id <> OLD.id)
BEGIN
    SELECT RAISE(ABORT, 'links of runs that are kept stay');
END;
