-- name: claim.best
-- Take the best ready tasks of the lanes a worker may serve.
--
-- $1 bigint      now, null for the server's clock
-- $2 bigint      how long the leases last unless renewed
-- $3 bigint      how long past its timeout an attempt may hold its lease
-- $4 text        lease token
-- $5 text        worker
-- $6 bigint      the most tasks to take
-- $7 text[]      the worker's capabilities
-- $8 text[]      the task types it can run, null for any
-- $9 text[]      task types that are not to be taken
-- $10…$14        the order of service, one line per queue and priority: queue, priority, head start, the waits of its
--                steps and, one more than those, the ranks before and after each step
--
-- {reach} is how many candidates are looked at: the most tasks to take and some for those that others take meanwhile.
-- It is written into the text because the planner would guess a parameter to be a tenth of the table.
--
-- The candidates are read without locks, then locked one by one in order of service, skipping what others hold, until
-- there are enough. Rows are reached by ctid: a version seen by this statement's snapshot stays where it is.
--
-- Returns the number of candidates and the tasks taken, in any order; one row with null columns when none was taken.
-- The number is -1, and nothing is taken, if any of the queues has tasks with concurrency keys: claim_limited.py is to
-- choose.
WITH now AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS at
),
keyed AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM {schema}.route AS r WHERE r.keyed AND r.queue = ANY ($10::text[])) AS found
),
lane AS MATERIALIZED (
    SELECT r.id AS route, o.priority, o.head_start, o.afters::bigint[] AS afters, o.ranks::int[] AS ranks
    FROM unnest($10::text[], $11::smallint[], $12::bigint[], $13::text[], $14::text[])
        AS o (queue, priority, head_start, afters, ranks)
    JOIN {schema}.route AS r ON r.queue = o.queue
    WHERE r.requires <@ $7::text[] AND ($8::text[] IS NULL OR r.type = ANY ($8::text[]))
        AND r.type <> ALL ($9::text[]) AND NOT (SELECT found FROM keyed)
),
-- The places of the candidates' rows, best first.
candidate AS MATERIALIZED (
    SELECT ARRAY(
        SELECT h.at
        FROM lane AS l
        CROSS JOIN LATERAL (
            SELECT t.ctid AS at, t.ready_at, t.id
            FROM {schema}.task AS t
            WHERE t.route = l.route AND t.priority = l.priority AND t.state = 1
            ORDER BY t.ready_at, t.id
            LIMIT {reach}
        ) AS h
        ORDER BY l.ranks[1 + width_bucket((SELECT at FROM now) - h.ready_at, l.afters)], h.ready_at - l.head_start, h.id
        LIMIT {reach}
    ) AS places
),
-- One candidate after the other, so that none is locked but those that are taken.
locked AS MATERIALIZED (
    SELECT k.at
    FROM unnest((SELECT places FROM candidate)) AS c (at)
    CROSS JOIN LATERAL (
        SELECT t.ctid AS at FROM {schema}.task AS t WHERE t.ctid = c.at AND t.state = 1 FOR UPDATE SKIP LOCKED
    ) AS k
    LIMIT $6::bigint
),
taken AS (
    UPDATE {schema}.task AS t
    SET state = 2, version = t.version + 1, attempts = t.attempts + 1, started_at = (SELECT at FROM now),
        token = $4::text, worker = $5::text,
        until = (SELECT at FROM now) + least($2::bigint, t.timeout + $3::bigint),
        alarm = (SELECT at FROM now) + least($2::bigint, t.timeout + $3::bigint)
    WHERE t.ctid = ANY (ARRAY(SELECT at FROM locked))
    RETURNING t.route, {claimed}
),
tallied AS (
    INSERT INTO {schema}.tally
    SELECT c.route, c.priority, s.state, s.sign * c.tasks
    FROM (SELECT route, priority, count(*) AS tasks FROM taken GROUP BY route, priority) AS c
    CROSS JOIN (VALUES (1, -1), (2, 1)) AS s (state, sign)
)
SELECT
    CASE WHEN (SELECT found FROM keyed) THEN -1 ELSE cardinality((SELECT places FROM candidate)) END, {claimed}
FROM (VALUES (0)) AS always (one) LEFT JOIN taken AS t ON true

-- name: claim.heads
-- The heads of the lanes a worker may serve, for orders of service that draw anew at each turn.
--
-- $1 text[]   queues
-- $2 text[]   the worker's capabilities
-- $3 text[]   the task types it can run, null for any
-- $4 text[]   task types that are not to be taken
-- $5 boolean  whether lanes of tasks with concurrency keys are left out
--
-- {reach} is how many heads of each lane are read.
--
-- Returns the server's clock, queue, route, priority, type, whether its tasks have concurrency keys, when the wait
-- began and id; each lane's in its order.
SELECT (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), r.queue, r.id, p.priority, r.type, r.keyed, h.ready_at, h.id::text
FROM {schema}.route AS r
CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint), (3::smallint)) AS p (priority)
CROSS JOIN LATERAL (
    SELECT t.ready_at, t.id
    FROM {schema}.task AS t
    WHERE t.route = r.id AND t.priority = p.priority AND t.state = 1
    ORDER BY t.ready_at, t.id
    LIMIT {reach}
) AS h
WHERE r.queue = ANY ($1::text[]) AND r.requires <@ $2::text[] AND ($3::text[] IS NULL OR r.type = ANY ($3::text[]))
    AND r.type <> ALL ($4::text[]) AND NOT (r.keyed AND $5::boolean)
ORDER BY r.id, p.priority, h.ready_at, h.id

-- name: claim.take
-- Take these tasks, as many as are still ready and not being taken by others.
--
-- $1 bigint  now, null for the server's clock
-- $2 bigint  how long the leases last unless renewed
-- $3 bigint  how long past its timeout an attempt may hold its lease
-- $4 text    lease token
-- $5 text    worker
-- $6 bigint  the most tasks to take
-- $7 uuid[]  ids, best first
--
-- Returns the tasks taken, best first, each with its turn.
WITH now AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS at
),
locked AS MATERIALIZED (
    SELECT t.id, g.turn
    FROM unnest($7::uuid[]) WITH ORDINALITY AS g (id, turn) JOIN {schema}.task AS t ON t.id = g.id
    WHERE t.state = 1
    ORDER BY g.turn
    LIMIT $6::bigint
    FOR UPDATE OF t SKIP LOCKED
),
taken AS (
    UPDATE {schema}.task AS t
    SET state = 2, version = t.version + 1, attempts = t.attempts + 1, started_at = (SELECT at FROM now),
        token = $4::text, worker = $5::text,
        until = (SELECT at FROM now) + least($2::bigint, t.timeout + $3::bigint),
        alarm = (SELECT at FROM now) + least($2::bigint, t.timeout + $3::bigint)
    FROM locked AS k
    WHERE t.id = k.id
    RETURNING k.turn, t.route, {claimed}
),
tallied AS (
    INSERT INTO {schema}.tally
    SELECT c.route, c.priority, s.state, s.sign * c.tasks
    FROM (SELECT route, priority, count(*) AS tasks FROM taken GROUP BY route, priority) AS c
    CROSS JOIN (VALUES (1, -1), (2, 1)) AS s (state, sign)
)
SELECT t.turn, {claimed} FROM taken AS t ORDER BY t.turn

-- name: claim.held
-- The tasks under one lease token.
--
-- $1 text  token
SELECT {columns} FROM {schema}.task AS t WHERE t.state = 2 AND t.token = $1::text
