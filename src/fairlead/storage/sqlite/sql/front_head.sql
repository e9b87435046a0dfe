-- The best task at the front of a lane, with its key. Parameters: lane.
SELECT front.ready_at, front.id, front.number, front.lane, coalesce(status.status, task.added), task.spec, front.key
FROM front
CROSS JOIN task ON task.number = front.number
LEFT JOIN status ON status.number = front.number
WHERE front.lane = ?
ORDER BY front.ready_at, front.id
LIMIT 1
