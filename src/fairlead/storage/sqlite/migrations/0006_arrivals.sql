-- A single task that arrives is one row; what else there is to write of it is written for many at once.
--
-- A row of `task` with a number above that in `filed` has arrived and is not filed: it has no entry in `directory` nor
-- in `ready`, and its lane does not count it. It is queued, and stands as it was added. Whoever changes anything but
-- arrivals files them first. `added` is how a task stood when it was added; `ready_at` is NULL for one that was not
-- queued then, and says nothing of one that is filed.

ALTER TABLE task RENAME TO old_task;
DROP INDEX task_id;

CREATE TABLE task (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    lane INTEGER NOT NULL,
    ready_at INTEGER,
    concurrency_key TEXT,
    spec BLOB NOT NULL,
    added BLOB NOT NULL
);

-- The number of each task.
CREATE TABLE directory (
    id TEXT PRIMARY KEY,
    number INTEGER NOT NULL
) WITHOUT ROWID;

-- One row: the number up to which tasks are filed.
CREATE TABLE filed (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL
);

INSERT INTO task (number, id, lane, concurrency_key, spec, added)
SELECT number, id, lane, concurrency_key, spec, status FROM old_task ORDER BY number;

INSERT INTO directory (id, number)
SELECT id, number FROM task ORDER BY id;

INSERT INTO filed (one, number)
SELECT 1, coalesce(max(number), 0) FROM task;

DROP TABLE old_task;
