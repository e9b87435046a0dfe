-- How tasks stand. Parameters: ids as a JSON array. CROSS JOIN fixes the order of the loops: the ids lead.
SELECT status.id, status.number, status.lane, status.status
FROM json_each(?) AS asked
CROSS JOIN status ON status.id = asked.value
