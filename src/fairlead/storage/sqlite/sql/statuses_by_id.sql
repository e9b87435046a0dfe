-- How tasks stand. Parameters: ids as a JSON array. CROSS JOIN fixes the order of the loops: the ids lead.
SELECT task.id, task.number, coalesce(status.lane, task.lane), coalesce(status.status, task.status), task.concurrency_key
FROM json_each(?) AS asked
CROSS JOIN task ON task.id = asked.value
LEFT JOIN status ON status.number = task.number
