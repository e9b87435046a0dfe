-- Whole tasks. Parameters: ids as a JSON array. CROSS JOIN fixes the order of the loops: the ids lead.
SELECT status.id, status.status, task.spec
FROM json_each(?) AS asked
CROSS JOIN status ON status.id = asked.value
CROSS JOIN task ON task.number = status.number
