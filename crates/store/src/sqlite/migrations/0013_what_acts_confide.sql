-- What a service was given that nobody else may see: sealed while its act is open, empty once that has ended, null
-- where there was nothing.
ALTER TABLE delegated_executions ADD COLUMN confided BLOB;

-- The branch that a run's pull request comes from, which is where its agent worked.
ALTER TABLE agent_sessions ADD COLUMN pr_head TEXT;
