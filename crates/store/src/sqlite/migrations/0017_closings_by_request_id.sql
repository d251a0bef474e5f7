-- Every closing is found by its request id in the chain itself. Refusals that took no row among the commands (a bad argument, a
-- full queue, an id that was used for something else) have only their closing; and a row beside the chain proves nothing.
-- One entry per command, none for its other events.
CREATE INDEX flow_events_by_request_id ON flow_events (payload ->> '$.request_id')
    WHERE event_type = 'command.completed';
