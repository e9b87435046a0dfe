-- The ready tasks of a lane, first in, first out. Parameters: lane.
SELECT ready.ready_at, ready.id, ready.number, ready.lane, coalesce(status.status, task.added), task.spec
FROM ready
CROSS JOIN task ON task.number = ready.number
LEFT JOIN status ON status.number = ready.number
WHERE ready.lane = ?
ORDER BY ready.ready_at, ready.id
