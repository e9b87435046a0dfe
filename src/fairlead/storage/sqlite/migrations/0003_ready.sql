-- Tasks that wait and have never been touched stand as they were added: a claim no longer rewrites a row in their midst.
--
-- `task` is written once and holds how the task stood when it was added. `ready` is the lanes: the queued tasks in the
-- order of service, of which a claim takes off the ends. `status` holds how those tasks stand that no longer stand as
-- they were added, so that what passes through lies together, apart from what waits.

ALTER TABLE task RENAME TO old_task;
ALTER TABLE status RENAME TO old_status;
DROP INDEX status_id;
DROP INDEX status_ready;
DROP INDEX status_lease;
DROP INDEX status_alarm;
DROP INDEX status_state;

CREATE TABLE task (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    lane INTEGER NOT NULL,
    spec BLOB NOT NULL,
    status BLOB NOT NULL
);

CREATE TABLE ready (
    lane INTEGER NOT NULL,
    ready_at INTEGER NOT NULL,
    id TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (lane, ready_at, id)
) WITHOUT ROWID;

CREATE TABLE status (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    lane INTEGER NOT NULL,
    state TEXT NOT NULL,
    alarm INTEGER,
    status BLOB NOT NULL
);

INSERT INTO task (number, id, lane, spec, status)
SELECT number, id, lane, spec, status FROM old_task JOIN old_status USING (number) ORDER BY number;

INSERT INTO ready (lane, ready_at, id, number)
SELECT lane, ready_at, id, number FROM old_status WHERE state = 'queued' ORDER BY lane, ready_at, id;

INSERT INTO status (number, id, lane, state, alarm, status)
SELECT number, id, lane, state, alarm, status FROM old_status WHERE state <> 'queued' ORDER BY number;

DROP TABLE old_task;
DROP TABLE old_status;

-- Every task passes through executing, so these are the price of each: a claim writes one entry, and a settle takes it
-- away and writes two. Executing tasks are found by the end of their lease, the others by their alarm; listings are of
-- the states that tasks stay in.
CREATE UNIQUE INDEX task_id ON task (id);
CREATE INDEX status_lease ON status (alarm, id) WHERE state = 'executing';
CREATE INDEX status_alarm ON status (alarm, id) WHERE state NOT IN ('queued', 'executing');
CREATE INDEX status_state ON status (state, id) WHERE state NOT IN ('queued', 'executing');
