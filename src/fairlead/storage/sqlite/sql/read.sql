-- name: read.tasks_by_id
-- Whole tasks that are filed. Parameters: ids as a JSON array. CROSS JOIN fixes the order of the loops: the ids lead.
SELECT task.id, CAST(coalesce(status.status, task.added) AS BLOB), CAST(task.spec AS BLOB)
FROM json_each(?) AS asked
CROSS JOIN directory ON directory.id = asked.value
CROSS JOIN task ON task.number = directory.number
LEFT JOIN status ON status.number = task.number

-- name: read.statuses_by_id
-- How tasks stand. Parameters: ids as a JSON array. CROSS JOIN fixes the order of the loops: the ids lead.
SELECT task.id, task.number, coalesce(status.lane, task.lane),
    CAST(coalesce(status.status, task.added) AS BLOB), task.concurrency_key
FROM json_each(?) AS asked
CROSS JOIN directory ON directory.id = asked.value
CROSS JOIN task ON task.number = directory.number
LEFT JOIN status ON status.number = task.number

-- name: read.packed_by_number
-- What a task is and how it stands. Parameters: number.
SELECT CAST(task.spec AS BLOB), CAST(coalesce(status.status, task.added) AS BLOB)
FROM task LEFT JOIN status ON status.number = task.number
WHERE task.number = ?

-- name: read.tasks_due
-- Tasks that are not executing and whose alarm has come, earliest first.
-- Parameters: now, then the (alarm, id) to start after, limit.
-- Those of a newer format are passed over by their lanes, without a look at their bytes.
SELECT status.alarm, status.id, CAST(status.status AS BLOB), CAST(task.spec AS BLOB)
FROM status INDEXED BY status_alarm
CROSS JOIN task ON task.number = status.number
WHERE status.state NOT IN ('queued', 'executing') AND status.alarm <= ? AND (status.alarm, status.id) > (?, ?)
    AND status.lane NOT IN (SELECT lane FROM lane WHERE instr(requires, 'format ') > 0)
ORDER BY status.alarm, status.id
LIMIT ?

-- name: read.leases_due
-- Executing tasks whose lease has ended, earliest first. Parameters: now, then the (alarm, id) to start after, limit.
-- Those of a newer format are passed over by their lanes, without a look at their bytes.
SELECT status.alarm, status.id, CAST(status.status AS BLOB), CAST(task.spec AS BLOB)
FROM status INDEXED BY status_lease
CROSS JOIN task ON task.number = status.number
WHERE status.state = 'executing' AND status.alarm <= ? AND (status.alarm, status.id) > (?, ?)
    AND status.lane NOT IN (SELECT lane FROM lane WHERE instr(requires, 'format ') > 0)
ORDER BY status.alarm, status.id
LIMIT ?

-- name: read.next_alarm
-- When the next alarm rings.
SELECT min(alarm) FROM (
    SELECT min(alarm) AS alarm FROM status INDEXED BY status_lease WHERE state = 'executing'
    UNION ALL
    SELECT min(alarm) FROM status INDEXED BY status_alarm WHERE state NOT IN ('queued', 'executing')
)

-- name: read.tasks_newest
-- Whole tasks by id, newest first. Parameters: after, queue, type, priority; each may be NULL.
-- The placeholders are filled in from `State`: the tables in their order, the one that leads, and what an index needs.
SELECT task.id, CAST(coalesce(status.status, task.added) AS BLOB), CAST(task.spec AS BLOB)
FROM {tables}
WHERE {condition}
  AND {leading}.id < coalesce(:after, 'g')
  AND coalesce(status.lane, task.lane) IN (
    SELECT lane FROM lane
    WHERE (:queue IS NULL OR queue = :queue)
      AND (:type IS NULL OR type = :type)
      AND (:priority IS NULL OR priority = :priority)
  )
ORDER BY {leading}.id DESC

-- name: read.tasks_oldest
-- Whole tasks by id, oldest first. Parameters: after, queue, type, priority; each may be NULL.
-- The placeholders are filled in from `State`: the tables in their order, the one that leads, and what an index needs.
SELECT task.id, CAST(coalesce(status.status, task.added) AS BLOB), CAST(task.spec AS BLOB)
FROM {tables}
WHERE {condition}
  AND {leading}.id > coalesce(:after, '')
  AND coalesce(status.lane, task.lane) IN (
    SELECT lane FROM lane
    WHERE (:queue IS NULL OR queue = :queue)
      AND (:type IS NULL OR type = :type)
      AND (:priority IS NULL OR priority = :priority)
  )
ORDER BY {leading}.id ASC

-- name: read.key_holder
-- The task that holds a key. Parameters: queue, key, now.
SELECT id FROM key WHERE queue = ? AND key = ? AND until > ?

-- name: read.tally
-- Every lane with its counts, in the order of State, and when the wait of its head began.
SELECT
    lane,
    queue,
    type,
    requires,
    priority,
    keyed,
    (SELECT min(ready_at) FROM ready WHERE ready.lane = lane.lane),
    scheduled, queued, executing, completed, failed, dead_letter, cancelled
FROM lane

-- name: read.stretch
-- How many ready tasks of a lane are from one place on and before another.
-- Parameters: queue, type, requires, priority, keyed, ready_at and id of the start, ready_at and id of the end, and how
-- many are counted at most of those that are filed, and of the others; -1 for all.
SELECT (
    SELECT count(*) FROM (
        SELECT 1 FROM ready
        WHERE ready.lane = lane.lane AND (ready_at, id) >= (?6, ?7) AND (ready_at, id) < (?8, ?9)
        LIMIT ?10
    )
) + (
    SELECT count(*) FROM (
        SELECT 1 FROM task
        WHERE number > (SELECT number FROM filed)
            AND task.lane = lane.lane AND (ready_at, id) >= (?6, ?7) AND (ready_at, id) < (?8, ?9)
        LIMIT ?10
    )
)
FROM lane
WHERE queue = ?1 AND type = ?2 AND requires = ?3 AND priority = ?4 AND keyed = ?5

-- name: read.location_of
-- The queue of a task, and what its lane requires. Parameters: id, twice.
SELECT lane.queue, lane.requires
FROM task
LEFT JOIN status ON status.number = task.number
JOIN lane ON lane.lane = coalesce(status.lane, task.lane)
WHERE task.number = (SELECT number FROM directory WHERE id = ?)
    OR (task.number > (SELECT number FROM filed) AND task.id = ?)
