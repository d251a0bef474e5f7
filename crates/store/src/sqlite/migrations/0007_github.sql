-- Names that one holder has for a while, in any process.
CREATE TABLE leases (
    name TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    until_ms INTEGER NOT NULL
) STRICT;

-- What GitHub delivered, each once. Its work stands here until it is done, and goes with the change that it
-- led to.
CREATE TABLE webhook_deliveries (
    delivery_id TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    event TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'done', 'ignored')),
    task TEXT,
    tries INTEGER NOT NULL,
    not_before_ms INTEGER NOT NULL,
    received_at_ms INTEGER NOT NULL,
    CHECK ((state = 'pending') = (task IS NOT NULL))
) STRICT;
-- Those that are still to be worked off are few; all others are only looked up by their id.
CREATE INDEX webhook_deliveries_pending ON webhook_deliveries (received_at_ms) WHERE state = 'pending';

-- A delivery that is done is never taken up again.
CREATE TRIGGER webhook_deliveries_refuse_steps BEFORE UPDATE ON webhook_deliveries
WHEN OLD.state <> 'pending'
BEGIN
    SELECT RAISE(ABORT, 'a delivery is worked off once');
END;
CREATE TRIGGER webhook_deliveries_refuse_delete BEFORE DELETE ON webhook_deliveries
WHEN OLD.state = 'pending'
BEGIN
    SELECT RAISE(ABORT, 'a delivery that is not worked off stays');
END;

-- The one comment of each run.
CREATE TABLE run_messages (
    run_id TEXT PRIMARY KEY,
    comment_id INTEGER,
    run_version INTEGER NOT NULL,
    text TEXT NOT NULL,
    labels_done INTEGER NOT NULL CHECK (labels_done IN (0, 1)),
    tries INTEGER NOT NULL,
    not_before_ms INTEGER NOT NULL
) STRICT;
