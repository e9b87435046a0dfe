-- The ready tasks of a lane, first in, first out. Parameters: lane.
SELECT status.ready_at, status.id, status.number, status.lane, status.status, task.spec
FROM status INDEXED BY status_ready
CROSS JOIN task ON task.number = status.number
WHERE status.lane = ? AND status.state = 'queued'
ORDER BY status.ready_at, status.id
