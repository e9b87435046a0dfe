-- name: add.tasks
-- Store tasks, of which no two share an id or a key, as far as they are new; add.new is for those that all are.
--
-- $1 bigint   now, null for the server's clock, to tell whether a key has expired
-- $2 text     the channel to tell of tasks that are ready
-- $3 text[]   the names of the tasks' routes; a task names its route by its place among these, from 1
-- $4 uuid[]   ids, ascending so that concurrent calls meet in the same order
-- $5…$29      one array per column; an array may be shorter than $4, and the rest of its column then has the default
--
-- Returns one row: how many tasks were stored, how many have a route that exists, and, unless all were stored, the ids
-- of those that were not, because the id or the key is known or the route does not exist.
WITH place AS MATERIALIZED (
    SELECT array_agg(r.id ORDER BY n.place) AS routes, array_agg(r.lane_group ORDER BY n.place) AS groups
    FROM unnest($3::text[]) WITH ORDINALITY AS n (name, place)
    LEFT JOIN {routes} AS r ON r.name = n.name
),
given AS MATERIALIZED (
    SELECT g.*, (SELECT routes FROM place)[g.place] AS route, (SELECT groups FROM place)[g.place] AS lane_group
    FROM unnest(
        $4::uuid[], $5::int[], $6::smallint[], $7::smallint[], $8::bigint[], $9::bigint[], $10::bigint[],
        $11::bigint[], $12::bytea[], $13::bytea[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[],
        $18::text[], $19::bytea[], $20::text[], $21::boolean[], $22::bytea[], $23::bigint[], $24::bigint[],
        $25::bytea[], $26::int[], $27::bigint[], $28::bytea[], $29::bigint[]
    ) AS g (
        id, place, priority, state, ready_at, timeout, alarm, created_at, spec, rest, version, beats, attempts,
        started_at, settled, progress, tags, cancel_asked, concurrency_key, pending, unmet, fair_key, fair_step, turn,
        key, key_until
    )
    WHERE (SELECT routes FROM place)[g.place] IS NOT NULL
),
-- Only keyed tasks need the look before the leap: a known id must not take a key over.
known AS MATERIALIZED (
    SELECT t.id FROM given AS g JOIN {schema}.task AS t ON t.id = g.id WHERE g.key IS NOT NULL
),
kept AS (
    INSERT INTO {schema}.key AS k (queue, key, holder, until)
    SELECT r.queue, g.key, g.id, coalesce(g.key_until, 0)
    FROM given AS g JOIN {schema}.route AS r ON r.id = g.route
    WHERE g.key IS NOT NULL AND g.id NOT IN (SELECT id FROM known)
    ORDER BY r.queue, g.key
    ON CONFLICT (queue, key) DO UPDATE SET holder = excluded.holder, until = excluded.until WHERE k.until <= coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    RETURNING holder
),
added AS (
    INSERT INTO {schema}.task (
        id, ready_at, timeout, alarm, started_at, created_at, version, beats, attempts, route, priority, state,
        cancel_asked, settled, key, tags, progress, rest, spec, concurrency_key, pending, unmet, fair_key, fair_step,
        turn, lane_group
    )
    SELECT
        g.id, g.ready_at, g.timeout, g.alarm, g.started_at, g.created_at, coalesce(g.version, 1), coalesce(g.beats, 0),
        coalesce(g.attempts, 0), g.route, g.priority, g.state, coalesce(g.cancel_asked, false), g.settled, g.key, g.tags::jsonb, g.progress,
        g.rest, g.spec, g.concurrency_key, g.pending, g.unmet, g.fair_key, g.fair_step, g.turn, g.lane_group
    FROM given AS g
    WHERE g.key IS NULL OR g.id IN (SELECT holder FROM kept)
    ON CONFLICT (id) DO NOTHING
    RETURNING id, route, priority, state, ready_at
),
counted AS MATERIALIZED (
    SELECT route, priority, state, count(*) AS tasks, min(ready_at) AS least FROM added GROUP BY route, priority, state
),
tallied AS (
    INSERT INTO {schema}.tally SELECT route, priority, state, tasks FROM counted
),
lowered AS (
    INSERT INTO {schema}.lowered
    SELECT g.id, c.least
    FROM counted AS c
    JOIN {schema}.route AS r ON r.id = c.route
    JOIN {schema}.lane_group AS g ON g.id = r.lane_group
    WHERE c.state = 1 AND {below}
),
told AS MATERIALIZED (
    SELECT pg_notify($2::text, r.queue || ' ' || sum(c.tasks))
    FROM counted AS c JOIN {schema}.route AS r ON r.id = c.route
    WHERE c.state = 1
    GROUP BY r.queue
)
SELECT
    (SELECT count(*) FROM added),
    (SELECT count(*) FROM given),
    CASE WHEN (SELECT count(*) FROM added) < cardinality($4::uuid[])
        THEN ARRAY(SELECT id::text FROM unnest($4::uuid[]) AS u (id) WHERE id NOT IN (SELECT id FROM added))
    END,
    (SELECT count(*) FROM told){late}

-- name: add.below
-- Whether a claim that begins at the bounds may miss the tasks. It is a part of add.tasks.
c.least < g.ceiling

-- name: add.held_routes
-- The routes, for a transaction that may see them as they were an hour ago: it fails if one has been forgotten since. It
-- is a part of add.tasks.
(SELECT * FROM {schema}.route WHERE name = ANY ($3::text[]) FOR KEY SHARE)

-- name: add.late
-- What keeps bounds from waiting for a transaction that may last long, and always says that it has lowered them. It is a
-- part of add.tasks. {name} is the schema.
, pg_advisory_xact_lock_shared(hashtext('fairlead late'), hashtext('{name}'))::text

-- name: add.new
-- Store new tasks without idempotency keys, all or none: it fails if an id is known or a route does not exist, and
-- add.tasks is to find out which. Not having to look before each task almost halves the work.
--
-- $1 text     the channel to tell of tasks that are ready
-- $2 text[]   the names of the tasks' routes; a task names its route by its place among these, from 1
-- $3 uuid[]   ids, ascending so that concurrent calls meet in the same order
-- $4…$23      one array per column; one that may be null or has a default may be shorter than $3, and the rest of its
--             column is then null or the default
--
-- $24…$26     fair key, step and turn, where some tasks have them: {turned} is then add.turned, and {turn_columns} and
--             {turns} are such columns and what is in them
--
-- Columns of numbers that are never null are read by subscript: it is one step, and saves a function scan for each.
--
-- Returns nothing of use.
WITH named AS MATERIALIZED (
    SELECT n.place, r.id, r.lane_group, r.queue
    FROM unnest($2::text[]) WITH ORDINALITY AS n (name, place)
    LEFT JOIN {schema}.route AS r ON r.name = n.name
),
known AS MATERIALIZED (
    SELECT
        ARRAY(SELECT id FROM named ORDER BY place) AS routes, ARRAY(SELECT lane_group FROM named ORDER BY place) AS groups
),
{turned}
added AS (
    INSERT INTO {schema}.task (
        id, route, lane_group, priority, state, ready_at, timeout, alarm, created_at, spec, rest, version, beats,
        attempts, started_at, settled, progress, tags, cancel_asked, concurrency_key, pending, unmet
        {turn_columns}
    )
    SELECT
        g.id, (SELECT routes FROM known)[($4::int[])[g.n]], (SELECT groups FROM known)[($4::int[])[g.n]],
        ($5::smallint[])[g.n], ($6::smallint[])[g.n],
        ($7::bigint[])[g.n], ($8::bigint[])[g.n], g.alarm, ($10::bigint[])[g.n], g.spec, g.rest,
        coalesce(g.version, 1), coalesce(g.beats, 0), coalesce(g.attempts, 0), g.started_at, g.settled, g.progress,
        g.tags::jsonb, coalesce(g.cancel_asked, false), g.concurrency_key, g.pending, g.unmet
        {turns}
    FROM ROWS FROM (
        unnest($3::uuid[]), unnest($9::bigint[]), unnest($11::bytea[]), unnest($12::bytea[]), unnest($13::bigint[]),
        unnest($14::bigint[]), unnest($15::bigint[]), unnest($16::bigint[]), unnest($17::text[]), unnest($18::bytea[]),
        unnest($19::text[]), unnest($20::boolean[]), unnest($21::bytea[]), unnest($22::bigint[]), unnest($23::bigint[])
    ) WITH ORDINALITY AS g (
        id, alarm, spec, rest, version, beats, attempts, started_at, settled, progress, tags, cancel_asked,
        concurrency_key, pending, unmet, n
    )
),
-- All or none are added, so they are counted as they were given.
counted AS MATERIALIZED (
    SELECT c.place, c.priority, c.state, count(*) AS tasks, min(c.ready_at) AS least
    FROM (
        SELECT
            ($4::int[])[n] AS place, ($5::smallint[])[n] AS priority, ($6::smallint[])[n] AS state,
            ($7::bigint[])[n] AS ready_at
        FROM generate_series(1, cardinality($3::uuid[])) AS n
    ) AS c
    GROUP BY c.place, c.priority, c.state
),
tallied AS (
    INSERT INTO {schema}.tally SELECT (SELECT routes FROM known)[place], priority, state, tasks FROM counted
),
lowered AS (
    INSERT INTO {schema}.lowered
    SELECT g.id, a.least
    FROM (
        SELECT (SELECT groups FROM known)[place] AS id, min(least) AS least FROM counted WHERE state = 1 GROUP BY 1
    ) AS a
    JOIN {schema}.lane_group AS g ON g.id = a.id
    WHERE a.least < g.ceiling
),
ready AS MATERIALIZED (
    SELECT (SELECT ARRAY(SELECT queue FROM named ORDER BY place))[place] AS queue, sum(tasks) AS tasks
    FROM counted
    WHERE state = 1
    GROUP BY 1
)
SELECT pg_notify($1::text, queue || ' ' || tasks) FROM ready

-- name: add.turned
-- The turns of the tasks that take any and are queued: from what their lines have reached, or the last of their keys, one
-- step after the other. Each line and each key is looked up once, for its first task. It is a part of add.new.
turns AS MATERIALIZED (
    SELECT array_agg(coalesce(p.place, 0) ORDER BY p.n) AS places, array_agg(coalesce(p.base, 0) ORDER BY p.n) AS bases
    FROM (
        SELECT
            k.n, k.base,
            max(k.last) OVER (PARTITION BY k.key, k.priority, k.takes)
                + sum(k.step) OVER (PARTITION BY k.key, k.priority, k.takes ORDER BY k.n) AS place
        FROM (
            SELECT
                l.*,
                CASE WHEN l.takes AND row_number() OVER (PARTITION BY l.key, l.priority, l.takes ORDER BY l.n) = 1
                    THEN greatest(l.reached, (
                        SELECT t.place FROM {schema}.task AS t
                        WHERE t.priority = l.priority AND t.fair_key = l.key AND t.state = 1 AND t.place IS NOT NULL
                        ORDER BY t.place DESC LIMIT 1
                    ))
                END AS last
            FROM (
                SELECT
                    e.n, e.key, e.priority, e.takes, e.step,
                    max(e.entered[1]) OVER (PARTITION BY e.line, e.priority, e.takes) AS reached,
                    max(e.entered[2]) OVER (PARTITION BY e.line, e.priority, e.takes) AS base
                FROM (
                    SELECT
                        f.*,
                        CASE WHEN f.takes
                            AND row_number() OVER (PARTITION BY f.line, f.priority, f.takes ORDER BY f.n) = 1
                            THEN {schema}.line_entered(f.line, f.priority, NULL)
                        END AS entered
                    FROM (
                        SELECT
                            g.n, g.key, {schema}.line_of(g.key) AS line, ($5::smallint[])[g.n] AS priority,
                            ($25::int[])[g.n] AS step,
                            g.key IS NOT NULL AND ($6::smallint[])[g.n] = 1 AND ($26::bigint[])[g.n] IS NULL AS takes
                        FROM unnest($24::bytea[]) WITH ORDINALITY AS g (key, n)
                    ) AS f
                ) AS e
            ) AS l
        ) AS k
    ) AS p
),

-- name: add.turn_columns
-- Where turns are. It is a part of add.new.
, fair_key, fair_step, turn, place

-- name: add.turns
-- What is in these. It is a part of add.new.
, ($24::bytea[])[g.n], ($25::int[])[g.n],
coalesce(($26::bigint[])[g.n], nullif((SELECT places FROM turns)[g.n], 0) - (SELECT bases FROM turns)[g.n]),
nullif((SELECT places FROM turns)[g.n], 0)

-- name: add.one
-- Store one new task as almost every submit makes it: never tried, without key and tags. It fails if the id is known or
-- the route does not exist. What add.new does for a batch in half the time, because most of that is for starting
-- the parts of a larger plan.
--
-- $1 text     the channel to tell of a task that is ready
-- $2 text     the name of its route
-- $3 uuid     id
-- $4 bigint   priority
-- $5 bigint   state
-- $6 bigint   ready_at
-- $7 bigint   timeout
-- $8 bigint   alarm
-- $9 bigint   created_at
-- $10 bytea   spec
-- $11 bytea   rest
--
-- Returns nothing of use.
WITH route AS MATERIALIZED (
    SELECT r.id, r.queue, r.lane_group FROM {schema}.route AS r WHERE r.name = $2::text
),
added AS (
    INSERT INTO {schema}.task (
        id, ready_at, timeout, alarm, created_at, version, beats, attempts, route, priority, state, cancel_asked, rest,
        spec, lane_group
    )
    VALUES (
        $3::uuid, $6::bigint, $7::bigint, $8::bigint, $9::bigint, 1, 0, 0, (SELECT id FROM route), $4::bigint,
        $5::bigint, false, $11::bytea, $10::bytea, (SELECT lane_group FROM route)
    )
),
tallied AS (
    INSERT INTO {schema}.tally VALUES ((SELECT id FROM route), $4::bigint, $5::bigint, 1)
),
lowered AS (
    INSERT INTO {schema}.lowered
    SELECT g.id, $6::bigint
    FROM {schema}.lane_group AS g
    WHERE $5::bigint = 1 AND g.id = (SELECT lane_group FROM route) AND $6::bigint < g.ceiling
)
SELECT CASE WHEN $5::bigint = 1 THEN pg_notify($1::text, (SELECT queue FROM route) || ' 1') END

-- name: add.standing
-- Why tasks cannot be added: the id is stored, or the key is held.
--
-- $1 bigint   now, null for the server's clock
-- $2 uuid[]   ids
-- $3 text[]   queues
-- $4 bytea[]  keys, null for none
--
-- Returns for each task, in order: whether the id is stored, and the id of the task that holds its key.
SELECT
    EXISTS (SELECT FROM {schema}.task AS t WHERE t.id = g.id),
    (
        SELECT k.holder::text FROM {schema}.key AS k
        WHERE k.queue = g.queue AND k.key = g.key AND k.until > coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    )
FROM unnest($2::uuid[], $3::text[], $4::bytea[]) WITH ORDINALITY AS g (id, queue, key, place)
ORDER BY g.place

-- name: add.lock
-- Serialise the adds to queues that have a bound, until the transaction ends.
--
-- $1 text    the schema, so that two stores in one database do not wait for each other
-- $2 text[]  queues, sorted
--
-- Returns nothing of use.
SELECT pg_advisory_xact_lock(hashtext('fairlead bound ' || $1::text), hashtext(q.queue))
FROM unnest($2::text[]) AS q (queue)

-- name: add.depth
-- How many tasks wait in queues that have a bound. The caller holds the queues' locks, so the sum stands until it
-- commits, but for tasks that are claimed or added without a bound meanwhile.
--
-- $1 text[]  queues
--
-- Returns queue and number of waiting tasks, for those that ever had one.
SELECT r.queue, coalesce(sum(y.tasks), 0)::bigint
FROM {schema}.route AS r JOIN {schema}.tally AS y ON y.route = r.id
WHERE r.queue = ANY ($1::text[]) AND y.state IN (0, 1)
GROUP BY r.queue

-- name: add.named
-- How tasks stand that others are to wait for. None of them can end before this transaction does.
--
-- $1 uuid[]  ids
--
-- Returns id and state of those that are there. They are locked in order of id, as changes lock them.
SELECT t.id::text, t.state FROM {schema}.task AS t WHERE t.id = ANY ($1::uuid[]) ORDER BY t.id FOR UPDATE

-- name: add.await
-- Take note of who waits for whom, in the transaction that looked at those waited for.
--
-- $1 uuid[]  tasks that are waited for   $2 uuid[]  for each of them, the task that waits
--
-- Returns nothing.
WITH linked AS (
    INSERT INTO {schema}.dependent (parent, id) SELECT * FROM unnest($1::uuid[], $2::uuid[]) ON CONFLICT DO NOTHING
)
UPDATE {schema}.task SET awaited = true WHERE id = ANY ($1::uuid[]) AND awaited IS NULL

-- name: add.routes
-- Make sure that routes exist.
--
-- $1 text[]  their names, distinct and sorted
-- $2 text[]  their queues
-- $3 text[]  their types
-- $4 text[]  their capability sets, each as a JSON array
-- $5 boolean[]  whether their tasks have concurrency keys
-- $6 boolean[]  whether they take turns
--
-- Returns nothing.
INSERT INTO {schema}.route (name, queue, type, requires, keyed, fair)
SELECT g.name, g.queue, g.type, ARRAY(SELECT jsonb_array_elements_text(g.requires::jsonb)), g.keyed, g.fair
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::boolean[], $6::boolean[])
    AS g (name, queue, type, requires, keyed, fair)
WHERE NOT EXISTS (SELECT FROM {schema}.route AS r WHERE r.name = g.name)
ON CONFLICT (name) DO NOTHING
