-- Which ids are taken. Parameters: ids as a JSON array.
SELECT status.id FROM json_each(?) AS asked CROSS JOIN status ON status.id = asked.value
