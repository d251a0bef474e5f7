-- A command whose caller asked another process to end it: the one that works on it looks.
ALTER TABLE open_commands ADD COLUMN end_wanted BOOLEAN NOT NULL DEFAULT false;
