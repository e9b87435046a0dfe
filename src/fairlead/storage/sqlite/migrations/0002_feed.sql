-- The feed: a bounded line of small values that all processes share.

CREATE TABLE feed (
    position INTEGER PRIMARY KEY,
    value BLOB NOT NULL
);

-- One row: the last position given, and how many values were ever published.
CREATE TABLE feed_end (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    position INTEGER NOT NULL,
    published INTEGER NOT NULL
);
