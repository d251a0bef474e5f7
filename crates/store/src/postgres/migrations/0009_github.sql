-- Names that one holder has for a while, on any node. How long is told by this database's own clock: those of the
-- nodes may differ.
CREATE TABLE leases (
    name TEXT COLLATE "C" PRIMARY KEY,
    holder TEXT NOT NULL,
    until_ms BIGINT NOT NULL
);
CREATE FUNCTION clock_ms() RETURNS BIGINT LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- What GitHub delivered, each once. Its work stands here until it is done, and goes with the change that it
-- led to.
CREATE TABLE webhook_deliveries (
    delivery_id TEXT COLLATE "C" PRIMARY KEY,
    version BIGINT NOT NULL,
    event TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'done', 'ignored')),
    task TEXT,
    tries BIGINT NOT NULL,
    not_before_ms BIGINT NOT NULL,
    received_at_ms BIGINT NOT NULL,
    CHECK ((state = 'pending') = (task IS NOT NULL))
);
-- Those that are still to be worked off are few; all others are only looked up by their id.
CREATE INDEX webhook_deliveries_pending ON webhook_deliveries (received_at_ms) WHERE state = 'pending';

-- A delivery that is done is never taken up again.
CREATE TRIGGER webhook_deliveries_refuse_steps BEFORE UPDATE ON webhook_deliveries FOR EACH ROW
WHEN (OLD.state <> 'pending')
EXECUTE FUNCTION refuse('a delivery is worked off once');
CREATE TRIGGER webhook_deliveries_refuse_delete BEFORE DELETE ON webhook_deliveries FOR EACH ROW
WHEN (OLD.state = 'pending')
EXECUTE FUNCTION refuse('a delivery that is not worked off stays');

-- The one comment of each run.
CREATE TABLE run_messages (
    run_id TEXT COLLATE "C" PRIMARY KEY,
    comment_id BIGINT,
    run_version BIGINT NOT NULL,
    text TEXT NOT NULL,
    labels_done BOOLEAN NOT NULL,
    tries BIGINT NOT NULL,
    not_before_ms BIGINT NOT NULL
);
