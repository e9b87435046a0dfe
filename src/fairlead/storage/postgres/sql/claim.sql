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
-- $15…$17        how promoted tasks and others of its queue take turns: at which rank, null for all; how many turns the
--                others have in a row, null where none take turns; and how many they had
--
-- {candidates} is claim.by_rank, or claim.by_turns where some tasks take turns.
-- {reach} is how many candidates are looked at: the most tasks to take and some for those that others take meanwhile.
-- It is written into the text because the planner would guess a parameter to be a tenth of the table.
--
-- The candidates are read without locks, then locked one by one in order of service, skipping what others hold, until
-- there are enough. Rows are reached by ctid: a version seen by this statement's snapshot stays where it is.
--
-- Returns the number of candidates and the tasks taken, in any order; one row with null columns when none was taken.
-- The number is -1, and nothing is taken, if any of the queues has tasks with concurrency keys: claim_limited.py is to
-- choose. It is -2, and nothing is taken, if some tasks take turns and the candidates are those of claim.by_rank.
WITH now AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS at
),
keyed AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM {schema}.route AS r WHERE r.keyed AND r.queue = ANY ($10::text[])) AS found
),
lane AS MATERIALIZED (
    SELECT
        r.id AS route, o.queue, o.priority, o.head_start, o.afters::bigint[] AS afters, o.ranks::int[] AS ranks,
        o.top, o.due, o.passed
    FROM unnest(
        $10::text[], $11::smallint[], $12::bigint[], $13::text[], $14::text[], $15::int[], $16::int[], $17::int[]
    ) AS o (queue, priority, head_start, afters, ranks, top, due, passed)
    JOIN {schema}.route AS r ON r.queue = o.queue
    WHERE r.requires <@ $7::text[] AND ($8::text[] IS NULL OR r.type = ANY ($8::text[]))
        AND r.type <> ALL ($9::text[]) AND NOT (SELECT found FROM keyed)
),
head AS MATERIALIZED (
    SELECT
        h.at, l.queue, l.ranks[1 + width_bucket((SELECT at FROM now) - h.ready_at, l.afters)] AS rank,
        l.ranks[1] AS own_rank, h.ready_at - l.head_start AS mark, h.id, l.top, l.due, l.passed
    FROM lane AS l
    CROSS JOIN LATERAL (
        SELECT t.ctid AS at, t.ready_at, t.id
        FROM {schema}.task AS t
        WHERE t.route = l.route AND t.priority = l.priority AND t.state = 1
        ORDER BY t.ready_at, t.id
        LIMIT {reach}
    ) AS h
),
-- The places of the candidates' rows, best first.
candidate AS MATERIALIZED (
    {candidates}
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
    CASE
        WHEN (SELECT found FROM keyed) THEN -1
        ELSE coalesce(cardinality((SELECT places FROM candidate)), -2)
    END,
    {claimed}
FROM (VALUES (0)) AS always (one) LEFT JOIN taken AS t ON true

-- name: claim.by_rank
-- The candidates where no task takes turns with others: a sort; null if some do. It is a part of claim.best.
SELECT CASE
    WHEN NOT EXISTS (
        SELECT FROM head AS h WHERE h.rank < h.own_rank AND h.due IS NOT NULL AND h.rank = coalesce(h.top, h.rank)
    )
        THEN ARRAY(SELECT h.at FROM head AS h ORDER BY h.rank, h.mark, h.id LIMIT {reach})
END AS places

-- name: claim.by_turns
-- The candidates where promoted tasks take turns with others at the best rank of their queue: every `due` others of a
-- queue are followed by a promoted one. It is a part of claim.best.
--
-- A task's side is 1 if it has the rank at which turns are taken by its priority, 2 if it was promoted to it, else 0
-- before it and 3 behind it.
--
-- Of several queues the one is served whose next task is the best; a task that had to wait for its turn may be better
-- than those before it, so what comes first of all queues goes by the worst that each queue has come to.
SELECT ARRAY(
    SELECT q.at
    FROM (
        SELECT o.*, max(o.place) OVER (PARTITION BY o.queue ORDER BY o.stage, o.turn) AS worst
        FROM (
            SELECT
                n.*,
                (n.side + 1) / 2 AS stage,
                CASE n.side
                    WHEN 2 THEN 2 * (greatest(n.due - n.passed, 0) + n.due * (n.number - 1)) + 1
                    ELSE 2 * n.number
                END AS turn
            FROM (
                SELECT
                    s.*,
                    row_number() OVER (ORDER BY s.rank, s.mark, s.id) AS place,
                    row_number() OVER (PARTITION BY s.queue, s.side ORDER BY s.rank, s.mark, s.id) AS number
                FROM (
                    SELECT
                        h.*,
                        CASE
                            WHEN h.rank > h.top OR h.top IS NULL THEN 3
                            WHEN h.rank < h.top THEN 0
                            WHEN h.rank < h.own_rank THEN 2
                            ELSE 1
                        END AS side
                    FROM head AS h
                ) AS s
            ) AS n
        ) AS o
    ) AS q
    ORDER BY q.worst, q.stage, q.turn
    LIMIT {reach}
) AS places

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
