-- Whole tasks that are filed. Parameters: ids as a JSON array. CROSS JOIN fixes the order of the loops: the ids lead.
SELECT task.id, coalesce(status.status, task.added), task.spec
FROM json_each(?) AS asked
CROSS JOIN directory ON directory.id = asked.value
CROSS JOIN task ON task.number = directory.number
LEFT JOIN status ON status.number = task.number
