-- The heads of the lanes a worker may serve, for orders of service that draw anew at each turn.
--
-- $1 text[]   queues
-- $2 text[]   the worker's capabilities
-- $3 text[]   the task types it can run, null for any
-- $4 text[]   task types that are not to be taken
-- $5 boolean  whether lanes of tasks with concurrency keys are left out
--
-- {reach} is how many heads of each lane are read.
--
-- Returns queue, route, priority, type, whether its tasks have concurrency keys, when the wait began and id; each lane's
-- in its order.
SELECT r.queue, r.id, p.priority, r.type, r.keyed, h.ready_at, h.id::text
FROM {schema}.route AS r
CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint), (3::smallint)) AS p (priority)
CROSS JOIN LATERAL (
    SELECT t.ready_at, t.id
    FROM {schema}.task AS t
    WHERE t.route = r.id AND t.priority = p.priority AND t.state = 1
    ORDER BY t.ready_at, t.id
    LIMIT {reach}
) AS h
WHERE r.queue = ANY ($1::text[]) AND r.requires <@ $2::text[] AND ($3::text[] IS NULL OR r.type = ANY ($3::text[]))
    AND r.type <> ALL ($4::text[]) AND NOT (r.keyed AND $5::boolean)
ORDER BY r.id, p.priority, h.ready_at, h.id
