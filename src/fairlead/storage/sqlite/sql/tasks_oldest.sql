-- Whole tasks by id, oldest first. Parameters: after, queue, type, priority; each may be NULL.
-- The placeholders are filled in from `State`: an index and a condition that SQLite can see to agree.
SELECT status.id, status.status, task.spec
FROM status INDEXED BY {index}
CROSS JOIN task ON task.number = status.number
WHERE {condition}
  AND status.id > coalesce(:after, '')
  AND status.lane IN (
    SELECT lane FROM lane
    WHERE (:queue IS NULL OR queue = :queue)
      AND (:type IS NULL OR type = :type)
      AND (:priority IS NULL OR priority = :priority)
  )
ORDER BY status.id ASC
