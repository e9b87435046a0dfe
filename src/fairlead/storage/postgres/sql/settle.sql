-- Compare and set for lease holders that give their task up, without having it ready again or changing its priority; of
-- no task twice, and of none that others wait for, whose end is to be counted.
--
-- $1 uuid[]   ids, ascending so that concurrent calls meet in the same order
-- $2 bigint[] the version that was read
-- $3 text[]   the lease token
-- $4…$16      the new status, one array per column
--
-- A token says that the task is executing, so the state is not compared: it would tempt the planner away from the ids.
-- Columns of numbers that are never null are read by subscript: it is one step, and saves a function scan for each.
--
-- Returns null if all changes were applied, else the ids of those that were; change.sql tells why the others were not.
WITH settled AS (
    UPDATE {schema}.task AS t
    SET state = ($5::smallint[])[c.n], ready_at = ($6::bigint[])[c.n], timeout = ($7::bigint[])[c.n],
        version = ($8::bigint[])[c.n], beats = ($9::bigint[])[c.n], attempts = ($10::bigint[])[c.n], alarm = c.alarm,
        started_at = c.started_at, cancel_asked = ($13::boolean[])[c.n], settled = c.settled, progress = c.progress,
        rest = c.rest, token = NULL, worker = NULL, until = NULL
    FROM ROWS FROM (
        unnest($1::uuid[]), unnest($3::text[]), unnest($11::bigint[]), unnest($12::bigint[]), unnest($14::text[]),
        unnest($15::bytea[]), unnest($16::bytea[])
    ) WITH ORDINALITY AS c (id, token, alarm, started_at, settled, progress, rest, n)
    WHERE t.id = c.id AND t.version = ($2::bigint[])[c.n] AND t.token = c.token AND t.priority = ($4::smallint[])[c.n]
        AND t.awaited IS NULL
    RETURNING t.id, t.route, t.priority, t.state
),
tallied AS (
    INSERT INTO {schema}.tally
    SELECT c.route, c.priority, m.state, m.tasks
    FROM (SELECT route, priority, state, count(*) AS tasks FROM settled GROUP BY route, priority, state) AS c
    CROSS JOIN LATERAL (VALUES (c.state, c.tasks), (2::smallint, -c.tasks)) AS m (state, tasks)
)
SELECT CASE WHEN count(*) < cardinality($1::uuid[]) THEN coalesce(array_agg(id::text), '{}') END FROM settled
