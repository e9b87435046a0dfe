-- Which ids are taken. Parameters: ids as a JSON array.
SELECT task.id FROM json_each(?) AS asked CROSS JOIN task ON task.id = asked.value
