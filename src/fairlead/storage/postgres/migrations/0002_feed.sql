-- The feed: a bounded line of small values that all processes share. It is a view of what happens, not truth, so it is
-- not logged: a crash of the server empties it, and nothing else.

CREATE UNLOGGED TABLE {schema}.feed (
    position bigint PRIMARY KEY,
    value bytea NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);

-- One row: the last position given, and how many values were ever published. Its lock makes publishers take turns, so
-- that positions become readable in their order; a sequence would give them out before the commit.
CREATE UNLOGGED TABLE {schema}.feed_end (
    one boolean PRIMARY KEY CHECK (one),
    position bigint NOT NULL,
    published bigint NOT NULL
) WITH (
    fillfactor = 10,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
