-- Store new tasks without idempotency keys, all or none: it fails if an id is known or a route does not exist, and
-- add.sql is to find out which. Not having to look before each task almost halves the work.
--
-- $1 text     the channel to tell of tasks that are ready
-- $2 text[]   the names of the tasks' routes; a task names its route by its place among these, from 1
-- $3 uuid[]   ids, ascending so that concurrent calls meet in the same order
-- $4…$23      one array per column; one that may be null or has a default may be shorter than $3, and the rest of its
--             column is then null or the default
--
-- Columns of numbers that are never null are read by subscript: it is one step, and saves a function scan for each.
--
-- Returns nothing of use.
WITH known AS MATERIALIZED (
    SELECT ARRAY(
        SELECT (SELECT r.id FROM {schema}.route AS r WHERE r.name = n.name)
        FROM unnest($2::text[]) WITH ORDINALITY AS n (name, place)
        ORDER BY n.place
    ) AS routes
),
added AS (
    INSERT INTO {schema}.task (
        id, route, priority, state, ready_at, timeout, alarm, created_at, spec, rest, version, beats, attempts,
        started_at, settled, progress, tags, cancel_asked, concurrency_key, pending, unmet
    )
    SELECT
        g.id, (SELECT routes FROM known)[($4::int[])[g.n]], ($5::smallint[])[g.n], ($6::smallint[])[g.n],
        ($7::bigint[])[g.n], ($8::bigint[])[g.n], g.alarm, ($10::bigint[])[g.n], g.spec, g.rest,
        coalesce(g.version, 1), coalesce(g.beats, 0), coalesce(g.attempts, 0), g.started_at, g.settled, g.progress,
        g.tags::jsonb, coalesce(g.cancel_asked, false), g.concurrency_key, g.pending, g.unmet
    FROM ROWS FROM (
        unnest($3::uuid[]), unnest($9::bigint[]), unnest($11::bytea[]), unnest($12::bytea[]), unnest($13::bigint[]),
        unnest($14::bigint[]), unnest($15::bigint[]), unnest($16::bigint[]), unnest($17::text[]), unnest($18::bytea[]),
        unnest($19::text[]), unnest($20::boolean[]), unnest($21::bytea[]), unnest($22::bigint[]), unnest($23::bigint[])
    ) WITH ORDINALITY AS g (
        id, alarm, spec, rest, version, beats, attempts, started_at, settled, progress, tags, cancel_asked,
        concurrency_key, pending, unmet, n
    )
    RETURNING route, priority, state
),
counted AS MATERIALIZED (
    SELECT route, priority, state, count(*) AS tasks FROM added GROUP BY route, priority, state
),
tallied AS (
    INSERT INTO {schema}.tally SELECT route, priority, state, tasks FROM counted
),
ready AS MATERIALIZED (
    SELECT r.queue, sum(c.tasks) AS tasks
    FROM counted AS c JOIN {schema}.route AS r ON r.id = c.route
    WHERE c.state = 1
    GROUP BY r.queue
)
SELECT pg_notify($1::text, queue || ' ' || tasks) FROM ready
