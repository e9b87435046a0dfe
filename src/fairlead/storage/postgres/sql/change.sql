-- name: change.apply
-- Compare and set, of no task twice.
--
-- $1 text       the channel to tell of tasks that are ready again
-- $2 uuid[]     ids
-- $3 bigint[]   the version that was read
-- $4 text[]     the lease token, for a lease holder's guard; else null
-- $5 bigint[]   the beats that were read, for anyone else's
-- $6 boolean[]  whether the task is to be removed
-- $7…$25        the new status, one array per column, null where the task is to be removed
-- $26 boolean   whether the ends of tasks that others wait for are counted in the same transaction
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
        $16::boolean[], $17::text[], $18::bytea[], $19::bytea[], $20::bigint[], $21::text[], $22::text[],
        $23::bigint[], $24::bigint[], $25::bigint[]
    ) WITH ORDINALITY AS c (
        id, guard_version, guard_token, guard_beats, removed, priority, state, ready_at, timeout, version, beats,
        attempts, alarm, started_at, cancel_asked, settled, progress, rest, turn, token, worker, until, pending, unmet,
        number
    )
),
stood AS MATERIALIZED (
    SELECT
        c.*, t.route, t.key, t.priority AS old_priority, t.state AS old_state, t.version AS old_version,
        t.beats AS old_beats, t.token AS old_token, t.settled AS old_settled,
        CASE WHEN t.awaited AND t.state < 3 AND (c.removed OR c.state > 2) THEN 3 ELSE 0 END AS applied
    FROM change AS c JOIN {schema}.task AS t ON t.id = c.id
    WHERE substr(t.rest, 1, 1) <> '\xc1'::bytea -- one of a newer format is not ours to change
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
    -- Turns are given in the order of the call.
    SELECT * FROM judged WHERE verdict = 0 OR (verdict = 3 AND $26::boolean) ORDER BY number
),
changed AS (
    UPDATE {schema}.task AS t
    SET priority = j.priority, state = j.state, ready_at = j.ready_at, timeout = j.timeout, version = j.version,
        beats = j.beats, attempts = j.attempts, alarm = j.alarm, started_at = j.started_at,
        cancel_asked = j.cancel_asked, settled = j.settled, progress = j.progress, rest = j.rest, token = j.token,
        worker = j.worker, until = j.until, pending = j.pending, unmet = j.unmet,
        turn = CASE WHEN t.state = 1 AND j.state = 1 AND t.priority = j.priority THEN t.turn ELSE j.turn END,
        place = CASE WHEN t.state = 1 AND j.state = 1 AND t.priority = j.priority THEN t.place END,
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

-- name: change.settle
-- Compare and set for lease holders that give their task up, without having it ready again or changing its priority; of
-- no task twice, and of none that others wait for, whose end is to be counted.
--
-- $1 uuid[]   ids, ascending so that concurrent calls meet in the same order
-- $2 bigint[] the version that was read
-- $3 text[]   the lease token
-- $4…$17      the new status, one array per column
--
-- A token says that the task is executing, so the state is not compared: it would tempt the planner away from the ids.
-- Columns of numbers that are never null are read by subscript: it is one step, and saves a function scan for each.
--
-- Returns null if all changes were applied, else the ids of those that were; change.apply tells why the others were not.
WITH settled AS (
    UPDATE {schema}.task AS t
    SET state = ($5::smallint[])[c.n], ready_at = ($6::bigint[])[c.n], timeout = ($7::bigint[])[c.n],
        version = ($8::bigint[])[c.n], beats = ($9::bigint[])[c.n], attempts = ($10::bigint[])[c.n], alarm = c.alarm,
        started_at = c.started_at, cancel_asked = ($13::boolean[])[c.n], settled = c.settled, progress = c.progress,
        rest = c.rest, turn = ($17::bigint[])[c.n], place = NULL, token = NULL, worker = NULL, until = NULL
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

-- name: change.hold
-- Lock tasks and those who wait for them, all in order of id, so that concurrent calls cannot deadlock. Who waits can
-- then be read by the next statement, and no one more can come to wait for these tasks meanwhile.
--
-- $1 uuid[]  ids
--
-- Returns nothing of use.
SELECT count(*)
FROM (
    SELECT t.id
    FROM {schema}.task AS t
    WHERE t.id IN (
        SELECT unnest($1::uuid[]) UNION SELECT d.id FROM {schema}.dependent AS d WHERE d.parent = ANY ($1::uuid[])
    )
    ORDER BY t.id
    FOR UPDATE
) AS held

-- name: change.release
-- Let those who wait for tasks know that these have ended, in the transaction that ended them.
--
-- $1 uuid[]     tasks that have ended   $2 boolean[]  whether each completed
--
-- Who has nothing left to wait for has an alarm at once.
--
-- Returns those of the ended tasks that someone waited for who has nothing left to wait for.
WITH gone AS (
    DELETE FROM {schema}.dependent AS d
    USING unnest($1::uuid[], $2::boolean[]) AS e (id, completed)
    WHERE d.parent = e.id
    RETURNING d.parent, d.id, e.completed
),
ends AS MATERIALIZED (
    SELECT id, count(*) AS ended, count(*) FILTER (WHERE NOT completed) AS unmet FROM gone GROUP BY id
),
counted AS (
    UPDATE {schema}.task AS t
    SET pending = nullif(t.pending - e.ended, 0), unmet = nullif(coalesce(t.unmet, 0) + e.unmet, 0),
        version = t.version + e.ended, alarm = CASE WHEN t.pending <= e.ended THEN 0 END
    FROM ends AS e
    WHERE t.id = e.id AND t.state = 0 AND t.alarm IS NULL
    RETURNING t.id, t.pending
)
SELECT DISTINCT g.parent::text FROM gone AS g JOIN counted AS c ON c.id = g.id WHERE c.pending IS NULL

-- name: change.extend
-- Renew leases and store progress; of no task twice.
--
-- $1 bigint   now, null for the server's clock
-- $2 bigint   how long leases last
-- $3 bigint   how long past its timeout an attempt may hold its lease
-- $4 uuid[]   ids, ascending
-- $5 text[]   lease tokens
-- $6 bytea[]  progress reports, null for none
--
-- After the clock went back the start of an attempt may lie ahead; it is then as if it began now.
--
-- Returns id and whether cancel was asked, for each lease that is held.
WITH now AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS at
)
UPDATE {schema}.task AS t
SET beats = t.beats + 1,
    started_at = least(t.started_at, n.at),
    until = least(n.at + $2::bigint, least(t.started_at, n.at) + t.timeout + $3::bigint),
    alarm = least(n.at + $2::bigint, least(t.started_at, n.at) + t.timeout + $3::bigint),
    progress = coalesce(b.progress, t.progress)
FROM now AS n, unnest($4::uuid[], $5::text[], $6::bytea[]) AS b (id, token, progress)
WHERE t.id = b.id AND t.token = b.token
RETURNING t.id::text, t.cancel_asked

-- name: change.curtail
-- Cut leases that would end later than a lease's length from now, latest first.
--
-- $1 bigint  now, null for the server's clock
-- $2 bigint  the length
-- $3 bigint  how many at most
--
-- One that is being changed just now is left alone: its holder renews it.
--
-- Returns how many there were.
WITH now AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS at
),
late AS MATERIALIZED (
    SELECT t.id
    FROM {schema}.task AS t
    WHERE t.state = 2 AND t.alarm > (SELECT at FROM now) + $2::bigint
    ORDER BY t.alarm DESC, t.id DESC
    LIMIT $3::bigint
    FOR UPDATE SKIP LOCKED
),
cut AS (
    UPDATE {schema}.task AS t
    SET until = (SELECT at FROM now) + $2::bigint, alarm = (SELECT at FROM now) + $2::bigint
    FROM late AS l
    WHERE t.id = l.id
    RETURNING t.id
)
SELECT count(*) FROM cut

-- name: change.set_aside
-- Remove a task that cannot be decoded, if its packed columns are still these; the caller tells those who wait for it.
--
-- $1 uuid   id      $2 bytea  spec      $3 bytea  rest      $4 bytea  progress
--
-- Returns one row: the state it was in, null if it was not removed, and whether there is a task of this id.
WITH gone AS (
    DELETE FROM {schema}.task AS t
    WHERE t.id = $1::uuid AND t.spec = $2::bytea AND t.rest = $3::bytea AND t.progress IS NOT DISTINCT FROM $4::bytea
    RETURNING t.id, t.route, t.priority, t.state, t.key
),
freed AS (
    DELETE FROM {schema}.key AS k
    USING gone AS g JOIN {schema}.route AS r ON r.id = g.route
    WHERE k.queue = r.queue AND k.key = g.key AND k.holder = g.id
),
unawaiting AS (
    DELETE FROM {schema}.dependent AS d USING gone AS g WHERE d.id = g.id
),
tallied AS (
    INSERT INTO {schema}.tally SELECT g.route, g.priority, g.state, -1 FROM gone AS g
)
SELECT (SELECT state FROM gone), EXISTS (SELECT FROM {schema}.task WHERE id = $1::uuid)

-- name: change.fold_tally
-- Replace many rows of the tally by their sums, and of those of turns keep the latest. Only rows that this statement deletes are in its sums, so it is exact
-- whatever runs beside it; the lock only spares several processes from doing the same work.
--
-- $1 text    the schema, as the name of the lock
-- $2 bigint  how few rows are left alone
--
-- Returns nothing.
WITH turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(hashtext('fairlead fold'), hashtext($1::text)) AS mine
),
batch AS MATERIALIZED (
    SELECT ctid AS at FROM {schema}.tally WHERE (SELECT mine FROM turn) LIMIT 20000
),
gone AS (
    DELETE FROM {schema}.tally AS y
    WHERE y.ctid = ANY (ARRAY(SELECT at FROM batch WHERE (SELECT count(*) FROM batch) > $2::bigint))
    RETURNING y.route, y.priority, y.state, y.tasks
),
passed AS (
    DELETE FROM {schema}.line_turn AS y
    USING (SELECT queue, priority, count(*) FROM {schema}.line_turn GROUP BY queue, priority HAVING count(*) > 100) AS l
    WHERE (SELECT mine FROM turn) AND y.queue = l.queue AND y.priority = l.priority AND y.id < (
        SELECT n.id FROM {schema}.line_turn AS n WHERE n.queue = l.queue AND n.priority = l.priority
        ORDER BY n.id DESC OFFSET 31 LIMIT 1
    )
)
INSERT INTO {schema}.tally
SELECT route, priority, state, sum(tasks) FROM gone GROUP BY route, priority, state HAVING sum(tasks) <> 0
