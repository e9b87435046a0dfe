-- Executing tasks whose lease has ended, earliest first. Parameters: now, then the (alarm, id) to start after, limit.
SELECT status.alarm, status.id, status.status, task.spec
FROM status INDEXED BY status_lease
CROSS JOIN task ON task.number = status.number
WHERE status.state = 'executing' AND status.alarm <= ? AND (status.alarm, status.id) > (?, ?)
ORDER BY status.alarm, status.id
LIMIT ?
