-- The fronts of the lanes of keyed tasks that a worker may serve: the keys there, and the first tasks of each.
--
-- $1 text[]   queues
-- $2 text[]   the worker's capabilities
-- $3 text[]   the task types it can run, null for any
-- $4 text[]   task types that are not to be taken
-- $5 bigint   how many tasks of each key are read
--
-- {reach} is how many keys of each lane are read.
--
-- Returns queue, route, type, priority, key, when the wait began and id; the last two are null for a key of which no task
-- waits there any more.
SELECT r.queue, r.id, r.type, p.priority, f.key, h.ready_at, h.id::text
FROM {schema}.route AS r
CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint), (3::smallint)) AS p (priority)
CROSS JOIN LATERAL (
    SELECT t.key
    FROM {schema}.front AS t
    WHERE t.route = r.id AND t.priority = p.priority
    ORDER BY t.ready_at, t.id
    LIMIT {reach}
) AS f
LEFT JOIN LATERAL (
    SELECT t.ready_at, t.id
    FROM {schema}.task AS t
    WHERE t.route = r.id AND t.concurrency_key = f.key AND t.priority = p.priority AND t.state = 1
    ORDER BY t.ready_at, t.id
    LIMIT $5::bigint
) AS h ON true
WHERE r.queue = ANY ($1::text[]) AND r.keyed AND r.requires <@ $2::text[]
    AND ($3::text[] IS NULL OR r.type = ANY ($3::text[])) AND r.type <> ALL ($4::text[])
ORDER BY r.id, p.priority, h.ready_at, h.id
