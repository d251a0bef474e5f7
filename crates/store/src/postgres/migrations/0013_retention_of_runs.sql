-- What belongs together is only added to, until the runs that it belongs to are gone themselves.
CREATE FUNCTION keep_links_of_runs() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.source_type = 'run' AND EXISTS (SELECT 1 FROM runs WHERE run_id = OLD.source_id COLLATE "C")
        OR OLD.target_type = 'run' AND EXISTS (SELECT 1 FROM runs WHERE run_id = OLD.target_id COLLATE "C")
        OR EXISTS (SELECT 1 FROM links AS of_run JOIN runs ON runs.run_id = of_run.source_id COLLATE "C"
            WHERE of_run.source_type = 'run' AND of_run.target_type = OLD.source_type
                AND of_run.target_id = OLD.source_id AND of_run.id <> OLD.id)
    THEN
        RAISE EXCEPTION 'links of runs that are kept stay' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN OLD;
END
$$;
DROP TRIGGER links_refuse_delete ON links;
CREATE TRIGGER links_refuse_delete BEFORE DELETE ON links FOR EACH ROW EXECUTE FUNCTION keep_links_of_runs();
