-- How many idempotency keys, of those looked at, are held by a task that is not there.
--
-- $1  how many keys to look at
--
-- Returns one row: the number.
SELECT count(*) FROM (SELECT holder FROM {schema}.key LIMIT $1) AS looked_at
WHERE NOT EXISTS (SELECT 1 FROM {schema}.task WHERE task.id = looked_at.holder)
