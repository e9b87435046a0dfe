-- Whole tasks by id, oldest first. Parameters: after, queue, type, priority; each may be NULL.
-- The placeholders are filled in from `State`: the tables in their order, the one that leads, and what an index needs.
SELECT task.id, coalesce(status.status, task.added), task.spec
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
