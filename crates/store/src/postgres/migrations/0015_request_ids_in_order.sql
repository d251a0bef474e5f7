-- A command by its request id, in order of place: without the place in the index, the planner of a long record walks
-- the whole of it in order instead, for it knows nothing of how few rows have one id.
DROP INDEX flow_events_by_request_id;
CREATE INDEX flow_events_by_request_id ON flow_events (payload_text(payload, 'request_id'), place)
    WHERE event_type = 'command.completed';
