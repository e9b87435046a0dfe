-- Store new tasks, of which no two share an id or a key, as far as they are new: add_new.sql for those that may not be.
--
-- $1 bigint   now, to tell whether a key has expired
-- $2 text     the channel to tell of tasks that are ready
-- $3 text[]   the names of the tasks' routes; a task names its route by its place among these, from 1
-- $4 uuid[]   ids, ascending so that concurrent calls meet in the same order
-- $5…$26      one array per column; an array may be shorter than $4, and the rest of its column then has the default
--
-- Returns one row: how many tasks were stored, how many have a route that exists, and, unless all were stored, the ids
-- of those that were not, because the id or the key is known or the route does not exist.
WITH place AS MATERIALIZED (
    SELECT array_agg(r.id ORDER BY n.place) AS routes, array_agg(n.name ORDER BY n.place) AS names
    FROM unnest($3::text[]) WITH ORDINALITY AS n (name, place)
    LEFT JOIN {schema}.route AS r ON r.name = n.name
),
given AS MATERIALIZED (
    SELECT g.*, (SELECT routes FROM place)[g.place] AS route
    FROM unnest(
        $4::uuid[], $5::int[], $6::smallint[], $7::smallint[], $8::bigint[], $9::bigint[], $10::bigint[],
        $11::bigint[], $12::bytea[], $13::bytea[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[],
        $18::text[], $19::bytea[], $20::text[], $21::boolean[], $22::bytea[], $23::bigint[], $24::bigint[],
        $25::bytea[], $26::bigint[]
    ) AS g (
        id, place, priority, state, ready_at, timeout, alarm, created_at, spec, rest, version, beats, attempts,
        started_at, settled, progress, tags, cancel_asked, concurrency_key, pending, unmet, key, key_until
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
    ON CONFLICT (queue, key) DO UPDATE SET holder = excluded.holder, until = excluded.until WHERE k.until <= $1::bigint
    RETURNING holder
),
added AS (
    INSERT INTO {schema}.task (
        id, ready_at, timeout, alarm, started_at, created_at, version, beats, attempts, route, priority, state,
        cancel_asked, settled, key, tags, progress, rest, spec, concurrency_key, pending, unmet
    )
    SELECT
        g.id, g.ready_at, g.timeout, g.alarm, g.started_at, g.created_at, coalesce(g.version, 1), coalesce(g.beats, 0),
        coalesce(g.attempts, 0), g.route, g.priority, g.state, coalesce(g.cancel_asked, false), g.settled, g.key, g.tags::jsonb, g.progress,
        g.rest, g.spec, g.concurrency_key, g.pending, g.unmet
    FROM given AS g
    WHERE g.key IS NULL OR g.id IN (SELECT holder FROM kept)
    ON CONFLICT (id) DO NOTHING
    RETURNING id, route, priority, state
),
counted AS MATERIALIZED (
    SELECT route, priority, state, count(*) AS tasks FROM added GROUP BY route, priority, state
),
tallied AS (
    INSERT INTO {schema}.tally SELECT route, priority, state, tasks FROM counted
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
    (SELECT count(*) FROM told)
