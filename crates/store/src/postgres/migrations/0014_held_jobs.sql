-- How many jobs are looked after is counted whenever one is taken, however many wait.
CREATE INDEX jobs_held ON jobs (holder) WHERE holder IS NOT NULL;
