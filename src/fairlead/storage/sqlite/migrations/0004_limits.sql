-- Concurrency keys and limits.
--
-- Tasks that have a key are in lanes of their own, so that the others need not look for one. They are in `ready` like
-- all that are queued; what a claim reads of them is `front`, the first of each key in each lane. `line` is all of them
-- by key, and `look` the keys whose front may have to change, with the moment from which on. A key that is in no row of
-- `look` has the first of each of its lines in front.

CREATE TABLE new_lane (
    lane INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    type TEXT NOT NULL,
    requires TEXT NOT NULL,
    priority INTEGER NOT NULL,
    keyed INTEGER NOT NULL DEFAULT 0,
    scheduled INTEGER NOT NULL DEFAULT 0,
    queued INTEGER NOT NULL DEFAULT 0,
    executing INTEGER NOT NULL DEFAULT 0,
    completed INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    dead_letter INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    UNIQUE (queue, type, requires, priority, keyed)
);

INSERT INTO new_lane (
    lane, queue, type, requires, priority,
    scheduled, queued, executing, completed, failed, dead_letter, cancelled
)
SELECT
    lane, queue, type, requires, priority,
    scheduled, queued, executing, completed, failed, dead_letter, cancelled
FROM lane;

DROP TABLE lane;
ALTER TABLE new_lane RENAME TO lane;

ALTER TABLE task ADD COLUMN concurrency_key TEXT;

CREATE TABLE line (
    lane INTEGER NOT NULL,
    key TEXT NOT NULL,
    ready_at INTEGER NOT NULL,
    id TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (lane, key, ready_at, id)
) WITHOUT ROWID;

CREATE TABLE front (
    lane INTEGER NOT NULL,
    ready_at INTEGER NOT NULL,
    id TEXT NOT NULL,
    number INTEGER NOT NULL,
    key TEXT NOT NULL,
    PRIMARY KEY (lane, ready_at, id)
) WITHOUT ROWID;

-- `under` is the limit that a key was full by; NULL when it is to be looked at whatever the limit.
CREATE TABLE look (
    queue TEXT NOT NULL,
    key TEXT NOT NULL,
    at INTEGER NOT NULL,
    under TEXT,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;

CREATE INDEX look_at ON look (queue, at, key);
CREATE INDEX look_under ON look (queue, under) WHERE under IS NOT NULL;

-- How many tasks of each key are executing; a key of which none is has no row.
CREATE TABLE running (
    queue TEXT NOT NULL,
    key TEXT NOT NULL,
    tasks INTEGER NOT NULL,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;

-- When the next start is due of what has a rate: a queue, a type or a key in it.
CREATE TABLE due (
    queue TEXT NOT NULL,
    name TEXT NOT NULL,
    due INTEGER NOT NULL,
    PRIMARY KEY (queue, name)
) WITHOUT ROWID;

CREATE INDEX due_due ON due (due);
