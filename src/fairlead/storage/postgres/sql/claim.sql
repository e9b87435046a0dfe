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
-- $8 bigint      the number of its type set, 0 for all types
-- $9 text[]      queues
-- $10 int[]      for each queue, where its lines begin among the next
-- $11…$13        the order of service, one line per priority: head start, the waits of its steps and, one more than
--                those, the ranks before and after each step
-- $14…$16        for each queue how promoted tasks and others take turns: at which rank, null for all; how many turns
--                the others have in a row, null where none take turns; and how many they had
-- $17 text[]     the task types it can run, null for any; for claim.of_lanes alone, and so is the next
-- $18 text[]     task types that are not to be taken
--
-- {reach} is how many candidates are looked at: the most tasks to take and some for those that others take meanwhile.
-- It is written into the text because the planner would guess a parameter to be a tenth of the table.
--
-- {first} is claim.of_all, claim.of_groups or claim.of_lanes: where the first tasks are looked for.
-- {candidates} is claim.by_rank, or claim.by_turns where some tasks take turns.
-- {covered} is claim.covered if the first tasks are of all types and the type set is not; else it is true.
--
-- The candidates are read without locks, then locked one by one in order of service, skipping what others hold, until
-- there are enough. Rows are reached by ctid: a version seen by this statement's snapshot stays where it is.
--
-- Returns the number of candidates and the tasks taken, in any order; one row with null columns when none was taken.
-- Below 0 it says why nothing was looked for: -1, tasks with concurrency keys wait, and claim_limited.py is to choose;
-- -2, some tasks take turns and the candidates are those of claim.by_rank; -3, it was not looked far enough, or there are
-- other types after all; -4, the type set is not there any more.
WITH now AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS at
),
{known},
served AS MATERIALIZED (
    SELECT
        g.*, q.queue, q.line, q.top, q.due, q.passed,
        (SELECT w.ready_at FROM {schema}.lowered AS w WHERE w.lane_group = g.id ORDER BY w.ready_at LIMIT 1) AS lowered
    FROM unnest($9::text[], $10::int[], $14::int[], $15::int[], $16::int[]) AS q (queue, line, top, due, passed)
    CROSS JOIN LATERAL (
        SELECT g.id, g.keyed, b.ready_at AS bounds, b.id AS bound_ids
        FROM {schema}.lane_group AS g
        LEFT JOIN {schema}.bound AS b ON b.lane_group = g.id AND b.type_set = $8::bigint
        WHERE g.queue = q.queue AND g.requires <@ $7::text[]
        -- So that groups are looked up, however many there are.
        OFFSET 0
    ) AS g
),
keyed AS MATERIALIZED (
    SELECT EXISTS (
        SELECT FROM served AS v
        WHERE v.keyed AND (
            SELECT true FROM {schema}.task AS t WHERE t.lane_group = v.id AND t.state = 1
            ORDER BY t.priority, t.ready_at, t.id LIMIT 1
        )
    ) AS found
),
line AS MATERIALIZED (
    SELECT
        v.id AS lane_group, v.queue, p.priority, ($11::bigint[])[v.line + p.priority] AS head_start,
        ($12::text[])[v.line + p.priority]::bigint[] AS afters, ($13::text[])[v.line + p.priority]::int[] AS ranks,
        v.top, v.due, v.passed,
        {from}
    FROM served AS v CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint), (3::smallint)) AS p (priority)
    WHERE NOT v.keyed AND NOT (SELECT found FROM keyed)
),
head AS MATERIALIZED (
    SELECT
        h.at, l.queue, l.ranks[1 + width_bucket((SELECT at FROM now) - h.ready_at, l.afters)] AS rank,
        l.ranks[1] AS own_rank, h.ready_at - l.head_start AS mark, h.id, l.top, l.due, l.passed
    FROM line AS l CROSS JOIN LATERAL ({first}) AS h
),
-- The places of the candidates' rows, best first; null where those begin that were not looked at.
candidate AS MATERIALIZED (
    {candidates}
),
-- Those before that, if they are enough.
near AS MATERIALIZED (
    SELECT CASE
        WHEN cardinality(n.places) >= least($6::bigint, cardinality(c.places)) AND EXISTS (SELECT FROM known)
            AND {covered}
            THEN n.places
    END AS places
    FROM candidate AS c
    CROSS JOIN LATERAL (
        SELECT c.places[:coalesce(array_position(c.places, NULL) - 1, {reach})] AS places
    ) AS n
),
-- One candidate after the other, so that none is locked but those that are taken.
locked AS MATERIALIZED (
    SELECT k.at
    FROM unnest((SELECT places FROM near)) AS c (at)
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
        WHEN (SELECT places FROM candidate) IS NULL THEN -2
        WHEN NOT EXISTS (SELECT FROM known) THEN -4
        ELSE coalesce(cardinality((SELECT places FROM near)), -3)
    END,
    {claimed}
FROM (VALUES (0)) AS always (one) LEFT JOIN taken AS t ON true

-- name: claim.from
-- Where the claims of a type set begin in a lane group: at its bound, or before that where a task was made ready. It is
-- a part of claim.best, claim.heads and bounds.move.
CASE WHEN v.lowered <= v.bounds[p.priority + 1] THEN v.lowered
    ELSE coalesce(v.bounds[p.priority + 1], -9223372036854775808) END AS from_ready_at,
CASE WHEN v.lowered <= v.bounds[p.priority + 1] THEN '00000000-0000-0000-0000-000000000000'
    ELSE coalesce(v.bound_ids[p.priority + 1], '00000000-0000-0000-0000-000000000000') END AS from_id

-- name: claim.of_all
-- The first tasks of a lane group and priority, of any type. It is a part of claim.best and claim.heads.
SELECT t.ctid AS at, t.route, t.ready_at, t.id
FROM {schema}.task AS t
WHERE t.lane_group = l.lane_group AND t.priority = l.priority AND t.state = 1
    AND (t.ready_at, t.id) >= (l.from_ready_at, l.from_id)
ORDER BY t.ready_at, t.id
LIMIT {reach}

-- name: claim.of_groups
-- The first tasks of a lane group and priority that are of types to be taken; up to {window} tasks are looked at. Where
-- these end, if they were not enough, is a row without a place. It is a part of claim.best and claim.heads.
WITH found AS MATERIALIZED (
    SELECT w.at, w.route, w.ready_at, w.id
    FROM (
        SELECT t.ctid AS at, t.route, t.ready_at, t.id
        FROM {schema}.task AS t
        WHERE t.lane_group = l.lane_group AND t.priority = l.priority AND t.state = 1
            AND (t.ready_at, t.id) >= (l.from_ready_at, l.from_id)
        ORDER BY t.ready_at, t.id
        LIMIT {window}
    ) AS w
    WHERE {admitted} {open_route}
    ORDER BY w.ready_at, w.id
    LIMIT {reach}
)
SELECT f.at, f.route, f.ready_at, f.id FROM found AS f
UNION ALL
SELECT e.*
FROM (
    SELECT NULL::tid, NULL::int, t.ready_at, t.id
    FROM {schema}.task AS t
    WHERE t.lane_group = l.lane_group AND t.priority = l.priority AND t.state = 1
        AND (t.ready_at, t.id) >= (l.from_ready_at, l.from_id)
    ORDER BY t.ready_at, t.id
    OFFSET {window} - 1
    LIMIT 1
) AS e
WHERE (SELECT count(*) FROM found) < {reach}

-- name: claim.of_lanes
-- The first tasks of the lanes that begin first, of a lane group and priority: for those that may take a few of its
-- lanes only, or none of its first tasks. Where the next lane begins is a row without a place. It is a part of claim.best
-- and claim.heads.
WITH first AS MATERIALIZED (
    SELECT r.id AS route, c.ready_at, c.id, row_number() OVER (ORDER BY c.ready_at, c.id) AS number
    FROM {schema}.route AS r
    CROSS JOIN LATERAL (
        SELECT t.ready_at, t.id
        FROM {schema}.task AS t
        WHERE t.route = r.id AND t.priority = l.priority AND t.state = 1
            AND (t.ready_at, t.id) >= (l.from_ready_at, l.from_id)
        ORDER BY t.ready_at, t.id
        LIMIT 1
    ) AS c
    WHERE r.lane_group = l.lane_group
        AND ({types} IS NULL OR r.type = ANY ({types})) AND r.type <> ALL ({excluded}) {open_type}
    ORDER BY c.ready_at, c.id
    LIMIT {reach} + 1
)
SELECT n.at, f.route, n.ready_at, n.id
FROM first AS f
CROSS JOIN LATERAL (
    SELECT t.ctid AS at, t.ready_at, t.id
    FROM {schema}.task AS t
    WHERE t.route = f.route AND t.priority = l.priority AND t.state = 1 AND (t.ready_at, t.id) >= (f.ready_at, f.id)
    ORDER BY t.ready_at, t.id
    LIMIT {reach}
) AS n
WHERE f.number <= {reach}
UNION ALL
SELECT NULL::tid, NULL::int, f.ready_at, f.id FROM first AS f WHERE f.number > {reach}

-- name: claim.covered
-- Whether a type set has all types of the lanes. It is a part of claim.best.
NOT EXISTS (
    SELECT FROM (
        SELECT r.id AS route FROM served AS v JOIN {schema}.route AS r ON r.lane_group = v.id WHERE NOT v.keyed
    ) AS w
    WHERE NOT ({admitted})
)

-- name: claim.known
-- A type set, if it is there: whether it is all types but those in it, and what was found out about routes. It is a part
-- of claim.best, claim.heads and bounds.move.
known AS MATERIALIZED (
    SELECT s.excluding, s.first_route, s.last_route, s.routes || ''::bytea AS routes
    FROM {schema}.type_set AS s
    WHERE s.id = {type_set}::bigint
    UNION ALL
    SELECT true, NULL, NULL, NULL WHERE {type_set}::bigint = 0
)

-- name: claim.admitted
-- Whether the type of a task may be taken: by what is known of its route, two bits for each, whether it is known and
-- whether it may; else its type is looked up. It is a part of claim.of_groups, claim.covered and bounds.move.
CASE
    WHEN {type_set}::bigint = 0 THEN true
    WHEN w.route BETWEEN (SELECT first_route FROM known) AND (SELECT last_route FROM known)
        AND get_bit((SELECT routes FROM known), 2 * (w.route - (SELECT first_route FROM known))) = 1
        THEN get_bit((SELECT routes FROM known), 2 * (w.route - (SELECT first_route FROM known)) + 1) = 1
    ELSE (SELECT excluding FROM known) = ((
        SELECT m.type
        FROM {schema}.type_set_member AS m
        WHERE m.type_set = {type_set}::bigint
            AND m.type = (SELECT r.type FROM {schema}.route AS r WHERE r.id = w.route)
        LIMIT 1
    ) IS NULL)
END

-- name: claim.by_rank
-- The candidates where no task takes turns with others: a sort; null if some do. It is a part of claim.best.
SELECT CASE
    WHEN NOT EXISTS (
        SELECT FROM head AS h WHERE h.rank < h.own_rank AND h.due IS NOT NULL AND h.rank = coalesce(h.top, h.rank)
    )
        THEN ARRAY(SELECT h.at FROM head AS h ORDER BY h.rank, h.mark, h.id, h.at LIMIT {reach})
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
                    row_number() OVER (ORDER BY s.rank, s.mark, s.id, s.at) AS place,
                    row_number() OVER (PARTITION BY s.queue, s.side ORDER BY s.rank, s.mark, s.id, s.at) AS number
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
-- The first tasks of the lanes that a worker may serve, where they are merged elsewhere: for orders of service that draw
-- anew at each turn, and for limits. No lane of tasks with concurrency keys is among them.
--
-- $1 text[]   queues
-- $2 text[]   the worker's capabilities
-- $3 bigint   the number of its type set, 0 for all types
-- $4 boolean  whether types are told
-- $5 text[]   queues; not for claim.of_all, nor the next
-- $6 text[]   for each of them a task type of it that is not to be taken just now
-- $7 text[]   the task types it can run, null for any; for claim.of_lanes alone, and so is the next
-- $8 text[]   task types that are not to be taken
--
-- {first} is claim.of_all, claim.of_groups or claim.of_lanes; {reach} is how many tasks it reads at a time.
--
-- Returns the server's clock, queue, lane group, priority, type, when the wait began and id, in the order of lane group
-- and priority and then of the wait. A row without a type says that there are other tasks from there on.
WITH {known},
served AS MATERIALIZED (
    SELECT
        g.id, g.queue, b.ready_at AS bounds, b.id AS bound_ids,
        (SELECT w.ready_at FROM {schema}.lowered AS w WHERE w.lane_group = g.id ORDER BY w.ready_at LIMIT 1) AS lowered
    FROM {schema}.lane_group AS g
    LEFT JOIN {schema}.bound AS b ON b.lane_group = g.id AND b.type_set = $3::bigint
    WHERE g.queue = ANY ($1::text[]) AND g.requires <@ $2::text[] AND NOT g.keyed
),
line AS MATERIALIZED (
    SELECT v.id AS lane_group, v.queue, p.priority, {from}
    FROM served AS v CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint), (3::smallint)) AS p (priority)
)
SELECT
    (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), l.queue, l.lane_group, l.priority,
    CASE
        WHEN h.at IS NULL THEN NULL
        WHEN $4::boolean THEN (SELECT r.type FROM {schema}.route AS r WHERE r.id = h.route)
        ELSE ''
    END,
    h.ready_at, h.id::text
FROM line AS l CROSS JOIN LATERAL ({first}) AS h
ORDER BY l.lane_group, l.priority, h.ready_at, h.id, h.at NULLS LAST

-- name: claim.open_route
-- Whether the limits of its type leave room for a task. It is a part of claim.of_groups within claim.heads.
AND (
    cardinality($5::text[]) = 0 OR (
        SELECT (l.queue, r.type) NOT IN (SELECT * FROM unnest($5::text[], $6::text[]))
        FROM {schema}.route AS r WHERE r.id = w.route
    )
)

-- name: claim.open_type
-- The same of a lane, of claim.of_lanes.
AND (l.queue, r.type) NOT IN (SELECT * FROM unnest($5::text[], $6::text[]))

-- name: claim.keyed
-- Whether tasks with concurrency keys wait that a worker may serve.
--
-- $1 text[]   queues
-- $2 text[]   the worker's capabilities
SELECT EXISTS (
    SELECT FROM {schema}.lane_group AS g
    WHERE g.queue = ANY ($1::text[]) AND g.requires <@ $2::text[] AND g.keyed
        AND (
            SELECT true FROM {schema}.task AS t WHERE t.lane_group = g.id AND t.state = 1
            ORDER BY t.priority, t.ready_at, t.id LIMIT 1
        )
)

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
