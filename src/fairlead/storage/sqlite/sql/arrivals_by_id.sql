-- Tasks that are not filed. Parameters: ids as a JSON array.
SELECT id, added, spec FROM task
WHERE number > (SELECT number FROM filed) AND id IN (SELECT value FROM json_each(?) AS asked)
