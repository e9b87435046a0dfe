-- Tasks, their lanes and keys, and small records.
--
-- A task is two rows under one number: `task` is written once, `status` is rewritten, so that a large payload is never
-- copied. The columns beside the packed status are only those that an index needs.

CREATE TABLE migration (
    version INTEGER PRIMARY KEY
);

-- One row per (queue, type, capability set, priority), with the number of its tasks in each state.
CREATE TABLE lane (
    lane INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    type TEXT NOT NULL,
    requires TEXT NOT NULL,
    priority INTEGER NOT NULL,
    scheduled INTEGER NOT NULL DEFAULT 0,
    queued INTEGER NOT NULL DEFAULT 0,
    executing INTEGER NOT NULL DEFAULT 0,
    completed INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    dead_letter INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    UNIQUE (queue, type, requires, priority)
);

CREATE TABLE task (
    number INTEGER PRIMARY KEY,
    spec BLOB NOT NULL
);

CREATE TABLE status (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    lane INTEGER NOT NULL,
    state TEXT NOT NULL,
    ready_at INTEGER NOT NULL,
    alarm INTEGER,
    status BLOB NOT NULL
);

-- A task passes through queued and executing on its way, so these indexes are the price of every task: a claim moves
-- one entry, and a settle that ends the task one more, beside the entry of its listing. Queued tasks are in the order of
-- service, executing ones by the end of their lease, the others by their alarm.
CREATE UNIQUE INDEX status_id ON status (id);
CREATE INDEX status_ready ON status (lane, ready_at, id) WHERE state = 'queued';
CREATE INDEX status_lease ON status (alarm, id) WHERE state = 'executing';
CREATE INDEX status_alarm ON status (alarm, id) WHERE state NOT IN ('queued', 'executing');

-- Listings of the states that tasks stay in.
CREATE INDEX status_state ON status (state, id) WHERE state NOT IN ('queued', 'executing');

CREATE TABLE key (
    queue TEXT NOT NULL,
    key TEXT NOT NULL,
    id TEXT NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;

CREATE TABLE record (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    value BLOB NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
