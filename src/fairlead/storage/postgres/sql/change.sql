-- Compare and set, of no task twice.
--
-- $1 text       the channel to tell of tasks that are ready again
-- $2 uuid[]     ids, ascending
-- $3 bigint[]   the version that was read
-- $4 text[]     the lease token, for a lease holder's guard; else null
-- $5 bigint[]   the beats that were read, for anyone else's
-- $6 boolean[]  whether the task is to be removed
-- $7…$24        the new status, one array per column, null where the task is to be removed
-- $25 boolean   whether the ends of tasks that others wait for are counted in the same transaction
--
-- The rows are locked in order of id before anything is compared, so that concurrent calls cannot deadlock and what is
-- compared is what is changed.
--
-- Returns id and verdict: 0 applied, 1 stale, 2 repeated, 3 not applied because it ends a task that others wait for, or
-- applied if such ends are counted; nothing for a task that is not there.
WITH change AS MATERIALIZED (
    SELECT *
    FROM unnest(
        $2::uuid[], $3::bigint[], $4::text[], $5::bigint[], $6::boolean[], $7::smallint[], $8::smallint[],
        $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[],
        $16::boolean[], $17::text[], $18::bytea[], $19::bytea[], $20::text[], $21::text[], $22::bigint[], $23::bigint[],
        $24::bigint[]
    ) AS c (
        id, guard_version, guard_token, guard_beats, removed, priority, state, ready_at, timeout, version, beats,
        attempts, alarm, started_at, cancel_asked, settled, progress, rest, token, worker, until, pending, unmet
    )
),
stood AS MATERIALIZED (
    SELECT
        c.*, t.route, t.key, t.priority AS old_priority, t.state AS old_state, t.version AS old_version,
        t.beats AS old_beats, t.token AS old_token, t.settled AS old_settled,
        CASE WHEN t.awaited AND t.state < 3 AND (c.removed OR c.state > 2) THEN 3 ELSE 0 END AS applied
    FROM change AS c JOIN {schema}.task AS t ON t.id = c.id
    ORDER BY t.id
    FOR UPDATE OF t
),
judged AS MATERIALIZED (
    SELECT
        s.*,
        CASE
            WHEN s.guard_token IS NULL AND s.old_version = s.guard_version AND s.old_beats = s.guard_beats
                THEN s.applied
            WHEN s.guard_token IS NULL THEN 1
            WHEN s.old_version = s.guard_version AND s.old_token IS NOT DISTINCT FROM s.guard_token THEN s.applied
            WHEN NOT s.removed AND s.old_settled = s.settled THEN 2
            ELSE 1
        END AS verdict
    FROM stood AS s
),
admitted AS MATERIALIZED (
    SELECT * FROM judged WHERE verdict = 0 OR (verdict = 3 AND $25::boolean)
),
changed AS (
    UPDATE {schema}.task AS t
    SET priority = j.priority, state = j.state, ready_at = j.ready_at, timeout = j.timeout, version = j.version,
        beats = j.beats, attempts = j.attempts, alarm = j.alarm, started_at = j.started_at,
        cancel_asked = j.cancel_asked, settled = j.settled, progress = j.progress, rest = j.rest, token = j.token,
        worker = j.worker, until = j.until, pending = j.pending, unmet = j.unmet,
        awaited = CASE WHEN j.verdict = 0 THEN t.awaited END
    FROM admitted AS j
    WHERE t.id = j.id AND NOT j.removed
    RETURNING t.route, t.priority, t.state
),
removed AS (
    DELETE FROM {schema}.task AS t USING admitted AS j WHERE t.id = j.id AND j.removed
),
freed AS (
    DELETE FROM {schema}.key AS k
    USING admitted AS j JOIN {schema}.route AS r ON r.id = j.route
    WHERE j.key IS NOT NULL AND j.removed
        AND k.queue = r.queue AND k.key = j.key AND k.holder = j.id
),
tallied AS (
    INSERT INTO {schema}.tally
    SELECT route, priority, state, sum(tasks)
    FROM (
        SELECT route, old_priority AS priority, old_state AS state, -1 AS tasks FROM admitted
        UNION ALL
        SELECT route, priority, state, 1 FROM changed
    ) AS d
    GROUP BY route, priority, state
    HAVING sum(tasks) <> 0
),
told AS MATERIALIZED (
    SELECT pg_notify($1::text, r.queue || ' ' || count(*))
    FROM changed AS c JOIN {schema}.route AS r ON r.id = c.route
    WHERE c.state = 1
    GROUP BY r.queue
)
SELECT j.id::text, j.verdict, (SELECT count(*) FROM told) FROM judged AS j
