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
-- Returns queue, type, capability set, priority, whether its tasks have concurrency keys and whether they take turns,
-- states, tasks in each, when the wait of its head began, and (the same in every row) the earliest alarm.
WITH counted AS MATERIALIZED (
    SELECT y.route, y.priority, y.state, sum(y.tasks)::bigint AS tasks
    FROM {schema}.tally AS y
    GROUP BY y.route, y.priority, y.state
    HAVING sum(y.tasks) <> 0
)
SELECT
    r.queue, r.type, r.requires, c.priority, r.keyed, r.fair, array_agg(c.state), array_agg(c.tasks),
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
-- $10 boolean[]  whether it is of tasks that take turns
-- $11 bigint     how many are counted at most in each
--
-- Returns a number for each stretch, in their order.
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM {schema}.route AS r JOIN {schema}.task AS t ON t.route = r.id
            WHERE r.queue = s.queue AND r.type = s.type AND r.keyed = s.keyed AND r.fair = s.fair
                AND r.requires = string_to_array(s.requires, ',') AND t.priority = s.priority AND t.state = 1
                AND (t.ready_at, t.id) >= (s.from_ready_at, s.from_id) AND (t.ready_at, t.id) < (s.to_ready_at, s.to_id)
            LIMIT $11::bigint
        ) AS counted
    )
FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::smallint[], $5::bigint[], $6::uuid[], $7::bigint[], $8::uuid[],
    $9::boolean[], $10::boolean[]
) WITH ORDINALITY AS s (
    queue, type, requires, priority, from_ready_at, from_id, to_ready_at, to_id, keyed, fair, number
)
ORDER BY s.number

-- name: read.count_by_turn
-- How many ready tasks are in stretches of lanes of fair tasks by turn, from one place on and before another.
--
-- $1 text[]      queues           $2 text[]  types
-- $3 text[]      capability sets, each with commas between its members
-- $4 smallint[]  priorities
-- $5 bigint[]    turns            $6 uuid[]  ids of the starts
-- $7 bigint[]    turns            $8 uuid[]  ids of the ends
-- $9 bigint      how many are counted at most in each
--
-- Returns a number for each stretch, in their order.
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM {schema}.route AS r JOIN {schema}.task AS t ON t.lane_group = r.lane_group AND t.route = r.id
            WHERE r.queue = s.queue AND r.type = s.type AND r.fair
                AND r.requires = string_to_array(s.requires, ',') AND t.priority = s.priority AND t.state = 1
                AND t.place IS NOT NULL AND (t.place, t.id) >= (b.base + s.from_turn, s.from_id)
                AND (t.place, t.id) < (b.base + s.to_turn, s.to_id)
            LIMIT $9::bigint
        ) AS counted
    )
FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::smallint[], $5::bigint[], $6::uuid[], $7::bigint[], $8::uuid[]
) WITH ORDINALITY AS s (queue, type, requires, priority, from_turn, from_id, to_turn, to_id, number)
CROSS JOIN LATERAL (
    SELECT coalesce(max(y.base), 0) AS base
    FROM (
        SELECT y.base FROM {schema}.line_turn AS y WHERE y.queue = s.queue AND y.priority = s.priority
        ORDER BY y.id DESC LIMIT 16
    ) AS y
) AS b
ORDER BY s.number

-- name: read.line_turns
-- How far the turns of a line have come, since it had no fair tasks last.
--
-- $1 text    queue
-- $2 bigint  priority
--
-- Returns one row: what was reached and the turn of the others.
SELECT
    coalesce(max(y.reached - y.newest), 0),
    coalesce(max(y.others - y.newest) FILTER (WHERE y.base = y.newest AND y.others > 0), 0)
FROM (
    SELECT y.*, max(y.base) OVER () AS newest
    FROM (
        SELECT y.reached, y.others, y.base
        FROM {schema}.line_turn AS y
        WHERE y.queue = $1::text AND y.priority = $2::bigint::smallint
        ORDER BY y.id DESC
        LIMIT 16
    ) AS y
) AS y

-- name: read.line_keys
-- The fair keys of which tasks wait in a line, each found by the one before it in the index.
--
-- $1 bytea   the queue and a byte of 0
-- $2 bytea   the queue and a byte of 1
-- $3 bigint  priority
-- $4 bytea[] keys, each behind the queue and a byte of 0, of which the tasks are counted
-- $5 bigint  up to how many keys the tasks of each are counted
-- $6 bigint  how many others are told at most
--
-- Returns the number of keys and no name; then names and how many tasks of each wait.
WITH RECURSIVE key (name) AS (
    (
        SELECT t.fair_key FROM {schema}.task AS t
        WHERE t.priority = $3::bigint::smallint AND t.fair_key >= $1::bytea AND t.fair_key < $2::bytea AND t.state = 1
            AND t.place IS NOT NULL
        ORDER BY t.fair_key LIMIT 1
    )
    UNION ALL
    SELECT n.fair_key
    FROM key AS k
    CROSS JOIN LATERAL (
        SELECT t.fair_key FROM {schema}.task AS t
        WHERE t.priority = $3::bigint::smallint AND t.fair_key > k.name AND t.fair_key < $2::bytea AND t.state = 1
            AND t.place IS NOT NULL
        ORDER BY t.fair_key LIMIT 1
    ) AS n
),
number AS MATERIALIZED (
    SELECT count(*) AS keys FROM key
),
asked AS (
    SELECT k.name FROM unnest($4::bytea[]) AS k (name)
    UNION
    SELECT k.name FROM key AS k WHERE $6::bigint > 0 AND (SELECT keys FROM number) <= $5::bigint
),
counted AS (
    SELECT
        a.name, a.name = ANY ($4::bytea[]) AS named,
        (
            SELECT count(*) FROM {schema}.task AS t
            WHERE t.priority = $3::bigint::smallint AND t.fair_key = a.name AND t.state = 1 AND t.place IS NOT NULL
        ) AS waiting
    FROM asked AS a
),
told AS (
    SELECT c.name, c.waiting FROM counted AS c WHERE c.named AND c.waiting > 0
    UNION ALL
    (SELECT c.name, c.waiting FROM counted AS c WHERE NOT c.named ORDER BY c.waiting DESC, c.name LIMIT $6::bigint)
)
SELECT NULL, n.keys FROM number AS n
UNION ALL
SELECT t.name, t.waiting FROM told AS t

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
