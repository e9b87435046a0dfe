-- Turns of fair tasks; and tables that nothing uses yet: entries that an attempt leaves with its task, and terms by which
-- tasks are found (ADR 0180).
--
-- The last thing that a lane of fair tasks requires is 'fair turns'. No capability is called so, so processes of an earlier
-- version take nothing of it, and what they do to its tasks leaves them in such a lane. Its head has no bound: what such
-- a process queues sets one, by which the next claim learns that turns are to be mended.
--
-- Fair tasks that are queued are in `ready`, and in `turn` with the turn that they were given. `line_turn` says how far
-- the turns of a queue and priority have come, `line_key` what each of its keys was given last; of a line in which no
-- fair task waits there is no row.

CREATE TABLE turn (
    lane INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    id TEXT NOT NULL,
    number INTEGER NOT NULL,
    ready_at INTEGER NOT NULL,
    key TEXT NOT NULL,
    PRIMARY KEY (lane, turn, id)
) WITHOUT ROWID;

CREATE TABLE line_turn (
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    reached INTEGER NOT NULL,
    others INTEGER NOT NULL,
    waiting INTEGER NOT NULL,
    PRIMARY KEY (queue, priority)
) WITHOUT ROWID;

CREATE TABLE line_key (
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    key TEXT NOT NULL,
    last INTEGER NOT NULL,
    waiting INTEGER NOT NULL,
    PRIMARY KEY (queue, priority, key)
) WITHOUT ROWID;

CREATE INDEX lane_fair ON lane (queue) WHERE instr(requires, 'fair turns') > 0;

CREATE TABLE entry (
    number INTEGER NOT NULL,
    position INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (number, position)
) WITHOUT ROWID;

CREATE TABLE term (
    term BLOB NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (term, id)
) WITHOUT ROWID;
