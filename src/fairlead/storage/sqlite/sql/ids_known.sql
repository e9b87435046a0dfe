-- Which ids are taken. Parameters: ids as a JSON array.
SELECT directory.id FROM json_each(?) AS asked CROSS JOIN directory ON directory.id = asked.value
