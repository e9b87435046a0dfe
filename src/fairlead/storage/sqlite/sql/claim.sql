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
