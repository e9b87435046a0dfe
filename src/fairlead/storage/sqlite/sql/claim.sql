-- name: claim.heads
-- The ready tasks of a lane, first in, first out. Parameters: lane.
SELECT ready.ready_at, ready.id, ready.number, ready.lane,
    CAST(coalesce(status.status, task.added) AS BLOB), CAST(task.spec AS BLOB)
FROM ready
CROSS JOIN task ON task.number = ready.number
LEFT JOIN status ON status.number = ready.number
WHERE ready.lane = ?
ORDER BY ready.ready_at, ready.id

-- name: claim.ready_take
-- Take the front off a lane, up to and with one task. Parameters: lane, and the task's ready_at and id.
DELETE FROM ready WHERE lane = ? AND (ready_at, id) <= (?, ?)

-- name: claim.places
-- The first ready tasks of a lane, first in, first out. Parameters: lane, the place to start after, how many.
SELECT ready_at, id, number, lane FROM ready
WHERE lane = ? AND (ready_at, id) > (?, ?)
ORDER BY ready_at, id
LIMIT ?

-- name: claim.bodies
-- What tasks are and how they stand. Parameters: numbers as a JSON array.
SELECT task.number, CAST(coalesce(status.status, task.added) AS BLOB), CAST(task.spec AS BLOB)
FROM json_each(?) AS asked
CROSS JOIN task ON task.number = asked.value
LEFT JOIN status ON status.number = task.number
