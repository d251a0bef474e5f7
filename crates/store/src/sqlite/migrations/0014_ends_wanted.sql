-- A command whose caller asked another process to end it: the one that works on it looks.
ALTER TABLE open_commands ADD COLUMN end_wanted INTEGER NOT NULL DEFAULT 0 CHECK (end_wanted IN (0, 1));
