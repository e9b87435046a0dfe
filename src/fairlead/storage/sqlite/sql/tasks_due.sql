-- Tasks that are not executing and whose alarm has come, earliest first. Parameters: now, then the (alarm, id) to start after, limit.
SELECT status.alarm, status.id, status.status, task.spec
FROM status INDEXED BY status_alarm
CROSS JOIN task ON task.number = status.number
WHERE status.state NOT IN ('queued', 'executing') AND status.alarm <= ? AND (status.alarm, status.id) > (?, ?)
ORDER BY status.alarm, status.id
LIMIT ?
