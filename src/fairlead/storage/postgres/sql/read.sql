-- name: read.get
-- Tasks by id.
--
-- $1 uuid[]  ids
--
-- Returns those that are there, in no order.
SELECT {columns} FROM {schema}.task AS t WHERE t.id = ANY ($1::uuid[])

-- name: read.find
-- One page of a listing, by id.
--
-- {branches} is one or more of read.branch, each with its own index; {order} is ASC or DESC.
--
-- $1 bigint  the most to return
SELECT {columns}
FROM ({branches}) AS t
ORDER BY t.id {order}
LIMIT $1::bigint

-- name: read.branch
-- A part of a listing: {conditions} is what the filter asks for, with the state as a literal so that the planner can
-- prove which partial index serves it.
(SELECT * FROM {schema}.task AS t WHERE {conditions} ORDER BY t.id {order} LIMIT $1::bigint)

-- name: read.routed
-- The routes of a queue or of a type; {field} is which, ? its name.
SELECT r.id FROM {schema}.route AS r WHERE r.{field} = ?::text

-- name: read.due
-- Tasks whose alarm has come, earliest first.
--
-- $1 bigint  now, null for the server's clock
-- $2 bigint  only those beyond this alarm
-- $3 uuid    and this id
-- $4 bigint  the most to return
--
-- Leases and other alarms have an index each, which are merged.
WITH now AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS at
)
SELECT {columns}
FROM (
    (
        SELECT * FROM {schema}.task
        WHERE state = 2 AND alarm <= (SELECT at FROM now) AND (alarm, id) > ($2::bigint, $3::uuid)
        ORDER BY alarm, id
        LIMIT $4::bigint
    )
    UNION ALL
    (
        SELECT * FROM {schema}.task
        WHERE state <> 2 AND alarm IS NOT NULL AND alarm <= (SELECT at FROM now) AND (alarm, id) > ($2::bigint, $3::uuid)
        ORDER BY alarm, id
        LIMIT $4::bigint
    )
) AS t
ORDER BY t.alarm, t.id
LIMIT $4::bigint

-- name: read.holder
-- The task that holds an idempotency key.
--
-- $1 text    the queue
-- $2 bytea   the key
-- $3 bigint  now, null for the server's clock
--
-- Returns its id, or no row.
SELECT k.holder::text
FROM {schema}.key AS k
WHERE k.queue = $1::text AND k.key = $2::bytea
  AND k.until > coalesce($3::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)

-- name: read.tally
-- How the whole store stands: one row per route and priority that has tasks. A lane may have two routes, of which one was
-- hidden just when a task came.
--
-- Returns queue, type, capability set, priority, whether its tasks have concurrency keys, states, tasks in each, when
-- the wait of its head began, and (the same in every row) the earliest alarm.
WITH counted AS MATERIALIZED (
    SELECT y.route, y.priority, y.state, sum(y.tasks)::bigint AS tasks
    FROM {schema}.tally AS y
    GROUP BY y.route, y.priority, y.state
    HAVING sum(y.tasks) <> 0
)
SELECT
    r.queue, r.type, r.requires, c.priority, r.keyed, array_agg(c.state), array_agg(c.tasks),
    CASE WHEN bool_or(c.state = 1) THEN (
        SELECT t.ready_at FROM {schema}.task AS t
        WHERE t.route = r.id AND t.priority = c.priority AND t.state = 1
        ORDER BY t.ready_at
        LIMIT 1
    ) END,
    least(
        (SELECT alarm FROM {schema}.task WHERE state = 2 AND alarm IS NOT NULL ORDER BY alarm LIMIT 1),
        (SELECT alarm FROM {schema}.task WHERE state <> 2 AND alarm IS NOT NULL ORDER BY alarm LIMIT 1)
    )
FROM counted AS c JOIN {schema}.route AS r ON r.id = c.route
GROUP BY r.id, c.priority

-- name: read.count
-- How many ready tasks are in stretches of their lanes, from one place on and before another.
--
-- $1 text[]      queues           $2 text[]  types
-- $3 text[]      capability sets, each with commas between its members
-- $4 smallint[]  priorities
-- $5 bigint[]    ready_at         $6 uuid[]  ids of the starts
-- $7 bigint[]    ready_at         $8 uuid[]  ids of the ends
-- $9 boolean[]   whether the lane is of tasks with concurrency keys
-- $10 bigint     how many are counted at most in each
--
-- Returns a number for each stretch, in their order.
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM {schema}.route AS r JOIN {schema}.task AS t ON t.route = r.id
            WHERE r.queue = s.queue AND r.type = s.type AND r.keyed = s.keyed
                AND r.requires = string_to_array(s.requires, ',') AND t.priority = s.priority AND t.state = 1
                AND (t.ready_at, t.id) >= (s.from_ready_at, s.from_id) AND (t.ready_at, t.id) < (s.to_ready_at, s.to_id)
            LIMIT $10::bigint
        ) AS counted
    )
FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::smallint[], $5::bigint[], $6::uuid[], $7::bigint[], $8::uuid[],
    $9::boolean[]
) WITH ORDINALITY AS s (queue, type, requires, priority, from_ready_at, from_id, to_ready_at, to_id, keyed, place)
ORDER BY s.place

-- name: read.location_of
-- The queue of a task, and what its lane requires.
--
-- $1 uuid  id
SELECT r.queue, r.requires FROM {schema}.task AS t JOIN {schema}.route AS r ON r.id = t.route WHERE t.id = $1::uuid

-- name: read.time
-- The server's clock, in microseconds.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- name: read.clocks
-- The server's clock, in microseconds, and which run of it this is: when that was started, as no other was.
--
-- Returns both.
SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
