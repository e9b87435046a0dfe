-- Whole tasks. Parameters: ids as a JSON array. CROSS JOIN fixes the order of the loops: the ids lead.
SELECT task.id, coalesce(status.status, task.status), task.spec
FROM json_each(?) AS asked
CROSS JOIN task ON task.id = asked.value
LEFT JOIN status ON status.number = task.number
