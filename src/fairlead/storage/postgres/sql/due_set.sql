-- Say when next starts are due, and forget what is past.
--
-- $1 bigint    now
-- $2 text[]    queues
-- $3 bytea[]   names
-- $4 bigint[]  moments, all of them after now
--
-- Returns nothing.
WITH past AS (
    DELETE FROM {schema}.due AS d
    USING (SELECT p.queue, p.name FROM {schema}.due AS p WHERE p.due <= $1::bigint ORDER BY p.due LIMIT 1000) AS p
    WHERE d.queue = p.queue AND d.name = p.name AND (d.queue, d.name) NOT IN (SELECT * FROM unnest($2::text[], $3::bytea[]))
)
INSERT INTO {schema}.due (queue, name, due)
SELECT * FROM unnest($2::text[], $3::bytea[], $4::bigint[])
ON CONFLICT (queue, name) DO UPDATE SET due = excluded.due
