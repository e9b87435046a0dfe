-- name: limits.read_committed
-- Let each statement of a transaction see what was committed before it, whatever the database's default is: what is
-- counted under a lock must be counted after it was got.
--
-- Returns nothing.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- name: limits.lock
-- Have the claims of queues that have limits or concurrency keys take turns, until the transaction ends.
--
-- $1 text    the schema, so that two stores in one database do not wait for each other
-- $2 text[]  queues, sorted
--
-- Returns nothing of use.
SELECT pg_advisory_xact_lock(hashtext('fairlead claim ' || $1::text), hashtext(q.queue))
FROM unnest($2::text[]) AS q (queue)

-- name: limits.wake
-- Let the keys come to the front that someone spoke of, that may go on by now, or that were full by another limit.
--
-- $1 text[]  queues
-- $2 text[]  the limit of each one's keys
-- $3 bigint  now
-- $4 bigint[]  for each queue a moment: what is put off to a later one was so by a clock that has gone back since
-- $5 bigint  never, to which what has to wait for another's end is put off
--
-- Returns nothing.
WITH asked AS MATERIALIZED (
    SELECT queue, under, horizon FROM unnest($1::text[], $2::text[], $4::bigint[]) AS q (queue, under, horizon)
),
nudged AS (
    DELETE FROM {schema}.nudge AS n
    WHERE n.ctid = ANY (ARRAY(SELECT m.ctid FROM {schema}.nudge AS m WHERE m.queue = ANY ($1::text[]) LIMIT 5000))
    RETURNING n.queue, n.key
),
woken AS MATERIALIZED (
    SELECT queue, key FROM nudged
    UNION
    SELECT a.queue, l.key
    FROM asked AS a CROSS JOIN LATERAL (
        SELECT key FROM {schema}.look AS l WHERE l.queue = a.queue AND l.at <= $3::bigint ORDER BY l.at LIMIT 1000
    ) AS l
    UNION
    SELECT a.queue, l.key
    FROM asked AS a CROSS JOIN LATERAL (
        SELECT key FROM {schema}.look AS l
        WHERE l.queue = a.queue AND l.at > a.horizon AND l.at < $5::bigint ORDER BY l.at LIMIT 1000
    ) AS l
    UNION
    SELECT a.queue, l.key
    FROM asked AS a CROSS JOIN LATERAL (
        SELECT key FROM {schema}.look AS l WHERE l.queue = a.queue AND l.under < a.under LIMIT 1000
    ) AS l
    UNION
    SELECT a.queue, l.key
    FROM asked AS a CROSS JOIN LATERAL (
        SELECT key FROM {schema}.look AS l WHERE l.queue = a.queue AND l.under > a.under LIMIT 1000
    ) AS l
),
looked AS (
    DELETE FROM {schema}.look AS l USING woken AS w WHERE l.queue = w.queue AND l.key = w.key
)
INSERT INTO {schema}.front (route, priority, ready_at, id, key)
SELECT r.id, p.priority, h.ready_at, h.id, w.key
FROM woken AS w
JOIN {schema}.route AS r ON r.queue = w.queue AND r.keyed
CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint), (3::smallint)) AS p (priority)
CROSS JOIN LATERAL (
    SELECT t.ready_at, t.id
    FROM {schema}.task AS t
    WHERE t.route = r.id AND t.concurrency_key = w.key AND t.priority = p.priority AND t.state = 1
    ORDER BY t.ready_at, t.id
    LIMIT 1
) AS h
ON CONFLICT DO NOTHING

-- name: limits.fronts
-- The fronts of the lanes of keyed tasks that a worker may serve: the keys there, and the first tasks of each.
--
-- $1 text[]   queues
-- $2 text[]   the worker's capabilities
-- $3 text[]   the task types it can run, null for any
-- $4 text[]   task types that are not to be taken
-- $5 bigint   how many tasks of each key are read
--
-- {reach} is how many keys of each lane are read.
--
-- Returns queue, route, type, priority, key, when the wait began and id; the last two are null for a key of which no
-- task waits there any more.
SELECT r.queue, r.id, r.type, p.priority, f.key, h.ready_at, h.id::text
FROM {schema}.route AS r
CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint), (3::smallint)) AS p (priority)
CROSS JOIN LATERAL (
    SELECT t.key
    FROM {schema}.front AS t
    WHERE t.route = r.id AND t.priority = p.priority
    ORDER BY t.ready_at, t.id
    LIMIT {reach}
) AS f
LEFT JOIN LATERAL (
    SELECT t.ready_at, t.id
    FROM {schema}.task AS t
    WHERE t.route = r.id AND t.concurrency_key = f.key AND t.priority = p.priority AND t.state = 1
    ORDER BY t.ready_at, t.id
    LIMIT $5::bigint
) AS h ON true
WHERE r.queue = ANY ($1::text[]) AND r.keyed AND r.requires <@ $2::text[]
    AND ($3::text[] IS NULL OR r.type = ANY ($3::text[])) AND r.type <> ALL ($4::text[])
ORDER BY r.id, p.priority, h.ready_at, h.id

-- name: limits.running
-- How many tasks of each type are executing in some queues. The caller has the queues' turn, so none becomes more.
--
-- $1 text[]  queues
--
-- Returns queue, type and number; and, without a queue, how many rows of the tally were read for it.
WITH running AS MATERIALIZED (
    SELECT y.route, sum(y.tasks) AS tasks, count(*) AS rows FROM {schema}.tally AS y WHERE y.state = 2 GROUP BY y.route
)
SELECT r.queue, r.type, sum(y.tasks)::bigint
FROM running AS y JOIN {schema}.route AS r ON r.id = y.route
WHERE y.tasks <> 0 AND r.queue = ANY ($1::text[])
GROUP BY r.queue, r.type
UNION ALL
SELECT NULL, NULL, coalesce(sum(y.rows), 0)::bigint FROM running AS y

-- name: limits.fold
-- Replace the rows of the tally that tell what runs by their sums, as change.fold_tally does with all rows: there are few
-- sums, so that this costs what was written since.
--
-- $1 text  the schema, as the name of the lock
--
-- Returns nothing.
WITH turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(hashtext('fairlead fold'), hashtext($1::text)) AS mine
),
gone AS (
    DELETE FROM {schema}.tally AS y
    WHERE y.ctid = ANY (ARRAY(
        SELECT b.ctid FROM {schema}.tally AS b WHERE b.state = 2 AND (SELECT mine FROM turn) LIMIT 20000
    ))
    RETURNING y.route, y.priority, y.state, y.tasks
)
INSERT INTO {schema}.tally
SELECT route, priority, state, sum(tasks) FROM gone GROUP BY route, priority, state HAVING sum(tasks) <> 0

-- name: limits.running_keys
-- How many tasks of some keys are executing. The caller has the queues' turn, so none becomes more.
--
-- $1 text[]   queues
-- $2 bytea[]  keys
--
-- Returns queue, key and number, of those that have any.
SELECT r.queue, t.concurrency_key, count(*)
FROM {schema}.task AS t JOIN {schema}.route AS r ON r.id = t.route
WHERE t.state = 2 AND t.concurrency_key = ANY ($2::bytea[]) AND r.queue = ANY ($1::text[])
GROUP BY r.queue, t.concurrency_key

-- name: limits.front_leave
-- Take keys from the fronts of lanes.
--
-- $1 int[]       routes
-- $2 smallint[]  priorities
-- $3 bytea[]     keys
--
-- Returns nothing.
DELETE FROM {schema}.front AS f
USING unnest($1::int[], $2::smallint[], $3::bytea[]) AS g (route, priority, key)
WHERE f.route = g.route AND f.priority = g.priority AND f.key = g.key

-- name: limits.front_come
-- Let the first task of keys come to the fronts of lanes.
--
-- $1 int[]       routes
-- $2 smallint[]  priorities
-- $3 bytea[]     keys
--
-- Returns nothing.
INSERT INTO {schema}.front (route, priority, ready_at, id, key)
SELECT g.route, g.priority, h.ready_at, h.id, g.key
FROM unnest($1::int[], $2::smallint[], $3::bytea[]) AS g (route, priority, key)
CROSS JOIN LATERAL (
    SELECT t.ready_at, t.id
    FROM {schema}.task AS t
    WHERE t.route = g.route AND t.concurrency_key = g.key AND t.priority = g.priority AND t.state = 1
    ORDER BY t.ready_at, t.id
    LIMIT 1
) AS h
ON CONFLICT DO NOTHING

-- name: limits.look_later
-- Have keys that are full looked at later.
--
-- $1 text[]    queues
-- $2 bytea[]   keys
-- $3 bigint[]  from when on
-- $4 text[]    the limits by which they are full
--
-- Returns nothing.
INSERT INTO {schema}.look (queue, key, at, under)
SELECT * FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::text[])
ON CONFLICT (queue, key) DO UPDATE SET at = excluded.at, under = excluded.under

-- name: limits.nudge
-- Have keys looked at by the next claim.
--
-- $1 text[]   queues
-- $2 bytea[]  keys
--
-- Returns nothing.
INSERT INTO {schema}.nudge (queue, key) SELECT * FROM unnest($1::text[], $2::bytea[])

-- name: limits.dues
-- When the next starts are due of some queues and what is in them.
--
-- $1 text[]   queues
-- $2 bytea[]  names
--
-- Returns queue, name and moment.
SELECT d.queue, d.name, d.due FROM {schema}.due AS d WHERE d.queue = ANY ($1::text[]) AND d.name = ANY ($2::bytea[])

-- name: limits.due_set
-- Say when next starts are due, and forget what is past.
--
-- $1 bigint    now
-- $2 text[]    queues
-- $3 bytea[]   names
-- $4 bigint[]  moments, all of them after now
--
-- Returns nothing.
WITH past AS (
    DELETE FROM {schema}.due AS d
    USING (SELECT p.queue, p.name FROM {schema}.due AS p WHERE p.due <= $1::bigint ORDER BY p.due LIMIT 1000) AS p
    WHERE d.queue = p.queue AND d.name = p.name AND (d.queue, d.name) NOT IN (SELECT * FROM unnest($2::text[], $3::bytea[]))
)
INSERT INTO {schema}.due (queue, name, due)
SELECT * FROM unnest($2::text[], $3::bytea[], $4::bigint[])
ON CONFLICT (queue, name) DO UPDATE SET due = excluded.due
