-- name: change.status_set
-- Store how tasks stand that no longer stand as they were added. Rows: number, id, lane, state, alarm, packed status.
-- In this form one statement takes many rows and goes straight to each; UPDATE ... FROM would first collect them.
INSERT INTO status (number, id, lane, state, alarm, status) VALUES {rows}
ON CONFLICT (number) DO UPDATE
SET lane = excluded.lane,
    state = excluded.state,
    alarm = excluded.alarm,
    status = excluded.status

-- name: change.ready_add
-- Put tasks into their lanes. Rows: lane, ready_at, id, number.
INSERT INTO ready (lane, ready_at, id, number) VALUES {rows}

-- name: change.ready_remove
-- Take a task out of its lane. Parameters: lane, ready_at, id.
DELETE FROM ready WHERE lane = ? AND ready_at = ? AND id = ?

-- name: change.leases_late
-- Executing tasks whose lease ends after a moment, latest first. Parameters: the moment, limit.
-- Those of a newer format are passed over by their lanes, without a look at their bytes.
SELECT id
FROM status INDEXED BY status_lease
WHERE state = 'executing' AND alarm > ?
    AND status.lane NOT IN (SELECT lane FROM lane WHERE instr(requires, 'format ') > 0)
ORDER BY alarm DESC
LIMIT ?

-- name: change.dependents_any
-- Whether any task waits for another.
SELECT EXISTS (SELECT 1 FROM dependent)

-- name: change.dependents_of
-- Who waits for a task. Parameters: its id.
SELECT id FROM dependent WHERE parent = ? ORDER BY id

-- name: change.dependents_remove
-- Forget who waits for a task. Parameters: its id.
DELETE FROM dependent WHERE parent = ?

-- name: change.key_free
-- Free a key if this task holds it. Parameters: queue, key, id.
DELETE FROM key WHERE queue = ? AND key = ? AND id = ?

-- name: change.task_remove
-- Forget what a task is. Parameters: number.
DELETE FROM task WHERE number = ?

-- name: change.directory_remove
-- Forget the number of a task. Parameters: id.
DELETE FROM directory WHERE id = ?

-- name: change.status_remove
-- Forget how a task stands. Parameters: number.
DELETE FROM status WHERE number = ?

-- name: change.task_stored
-- A task as it is stored, and where. Parameters: id.
SELECT
    task.number,
    coalesce(status.lane, task.lane),
    coalesce(status.state, 'queued'),
    task.concurrency_key,
    CAST(coalesce(status.status, task.added) AS BLOB),
    CAST(task.spec AS BLOB)
FROM directory
CROSS JOIN task ON task.number = directory.number
LEFT JOIN status ON status.number = task.number
WHERE directory.id = ?

-- name: change.ready_forget
-- Take a task out of its lane of which nobody knows when it became ready. Parameters: lane, id.
DELETE FROM ready WHERE lane = ? AND id = ?

-- name: change.key_forget
-- Free the key that a task holds, whichever it is. Parameters: id.
DELETE FROM key WHERE id = ?

-- name: change.dependents_forget
-- Forget that a task waits for others. Parameters: id.
DELETE FROM dependent WHERE id = ?
