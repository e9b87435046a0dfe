-- Compare and set for lease holders that give their task up and leave its priority as it is; of no task twice, and of
-- none that others wait for, whose end is to be counted.
--
-- $1 text     the channel to tell of tasks that are ready again
-- $2 uuid[]   ids, ascending so that concurrent calls meet in the same order
-- $3 bigint[] the version that was read
-- $4 text[]   the lease token
-- $5…$17      the new status, one array per column; an array may be shorter, its column is then null from there on
--
-- A token says that the task is executing, so the state is not compared: it would tempt the planner away from the ids.
--
-- Returns null if all changes were applied, else the ids of those that were not; change.sql finds out why.
WITH settled AS (
    UPDATE {schema}.task AS t
    SET state = c.state, ready_at = c.ready_at, timeout = c.timeout, version = c.new_version, beats = c.beats,
        attempts = c.attempts, alarm = c.alarm, started_at = c.started_at, cancel_asked = coalesce(c.cancel_asked, false),
        settled = c.settled, progress = c.progress, rest = c.rest, token = NULL, worker = NULL, until = NULL
    FROM unnest(
        $2::uuid[], $3::bigint[], $4::text[], $5::smallint[], $6::smallint[], $7::bigint[], $8::bigint[], $9::bigint[],
        $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::boolean[], $15::text[], $16::bytea[],
        $17::bytea[]
    ) AS c (
        id, version, token, priority, state, ready_at, timeout, new_version, beats, attempts, alarm, started_at,
        cancel_asked, settled, progress, rest
    )
    WHERE t.id = c.id AND t.version = c.version AND t.token = c.token AND t.priority = c.priority
        AND t.awaited IS NULL
    RETURNING t.id, t.route, t.priority, t.state
),
counted AS MATERIALIZED (
    SELECT route, priority, state, count(*) AS tasks FROM settled GROUP BY route, priority, state
),
tallied AS (
    INSERT INTO {schema}.tally
    SELECT route, priority, state, tasks FROM counted
    UNION ALL
    SELECT route, priority, 2, -sum(tasks)::bigint FROM counted GROUP BY route, priority
),
told AS MATERIALIZED (
    SELECT pg_notify($1::text, r.queue || ' ' || sum(c.tasks))
    FROM counted AS c JOIN {schema}.route AS r ON r.id = c.route
    WHERE c.state = 1
    GROUP BY r.queue
)
SELECT
    CASE WHEN (SELECT count(*) FROM settled) < cardinality($2::uuid[])
        THEN ARRAY(SELECT id::text FROM unnest($2::uuid[]) AS u (id) WHERE id NOT IN (SELECT id FROM settled))
    END,
    (SELECT count(*) FROM told)
