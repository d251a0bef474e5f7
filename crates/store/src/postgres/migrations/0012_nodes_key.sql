-- The key that nodes share by a file, told by its public half: what is sealed with it must not be opened with what
-- stands here. The first node that needs it says whose it is; whoever lost it takes this row away.
CREATE TABLE nodes_key (
    is_only BOOLEAN PRIMARY KEY CHECK (is_only),
    public_key TEXT NOT NULL,
    node TEXT NOT NULL
);
