-- How tasks stand. Parameters: ids as a JSON array. CROSS JOIN fixes the order of the loops: the ids lead.
SELECT task.id, task.number, coalesce(status.lane, task.lane), coalesce(status.status, task.added), task.concurrency_key
FROM json_each(?) AS asked
CROSS JOIN directory ON directory.id = asked.value
CROSS JOIN task ON task.number = directory.number
LEFT JOIN status ON status.number = task.number
