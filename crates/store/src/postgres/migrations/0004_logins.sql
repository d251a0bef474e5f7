-- Browsers that are logged in, and the codes that let one in, once.
CREATE TABLE logins (
    -- SHA-256 of the code or the browser's secret, which itself is kept nowhere.
    digest BYTEA PRIMARY KEY CHECK (length(digest) = 32),
    kind TEXT NOT NULL CHECK (kind IN ('code', 'browser')),
    credential TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('operator', 'approver', 'viewer')),
    name TEXT NOT NULL,
    -- The token that it was made from, and ends with.
    token TEXT REFERENCES tokens (id),
    created_at_ms BIGINT NOT NULL,
    expires_at_ms BIGINT NOT NULL
);
CREATE INDEX logins_by_end ON logins (expires_at_ms);

-- A login is made and ended, never changed: none lives longer or becomes another's.
CREATE TRIGGER logins_do_not_change BEFORE UPDATE ON logins
    FOR EACH ROW EXECUTE FUNCTION refuse('a login does not change');
