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
-- {head} is claim.by_wait, or claim.by_fair_turn of a single queue where fair tasks wait; then {turned} is claim.fair_turned,
-- {apart}, {places}, {taken} and {order} are as there is said. {candidates} is claim.by_rank, or claim.by_turns where promoted
-- tasks and others take turns.
-- {covered} is claim.covered if the first tasks are of all types and the type set is not; else it is true.
--
-- The candidates are read without locks, then locked one by one in order of service, skipping what others hold, until
-- there are enough. Rows are reached by ctid: a version seen by this statement's snapshot stays where it is.
--
-- Returns the number of candidates and the tasks taken, in any order; one row with null columns when none was taken.
-- Below 0 it says why nothing was looked for: -1, tasks with concurrency keys wait or such as take turns, and
-- claim_limited.py is to choose; -2, some tasks take turns and the candidates are those of claim.by_rank; -3, it was not looked far enough, or there are
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
        SELECT g.id, {apart} AS apart, g.fair, b.ready_at AS bounds, b.id AS bound_ids
        FROM {schema}.lane_group AS g
        LEFT JOIN {schema}.bound AS b ON b.lane_group = g.id AND b.type_set = $8::bigint
        WHERE g.queue = q.queue AND g.requires <@ $7::text[]
        -- So that groups are looked up, however many there are.
        OFFSET 0
    ) AS g
),
apart AS MATERIALIZED (
    SELECT EXISTS (
        SELECT FROM served AS v
        WHERE v.apart AND (
            SELECT true FROM {schema}.task AS t WHERE t.lane_group = v.id AND t.state = 1
            ORDER BY t.priority, t.ready_at, t.id LIMIT 1
        )
    ) AS found
),
line AS MATERIALIZED (
    SELECT
        v.id AS lane_group, v.queue, p.priority, ($11::bigint[])[v.line + p.priority] AS head_start,
        ($12::text[])[v.line + p.priority]::bigint[] AS afters, ($13::text[])[v.line + p.priority]::int[] AS ranks,
        v.top, v.due, v.passed, v.fair,
        {from}
    FROM served AS v CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint), (3::smallint)) AS p (priority)
    WHERE NOT v.apart AND NOT (SELECT found FROM apart)
),
{head},
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
    RETURNING t.route, {places}{claimed}
),
tallied AS (
    INSERT INTO {schema}.tally
    SELECT c.route, c.priority, s.state, s.sign * c.tasks
    FROM (SELECT route, priority, count(*) AS tasks FROM taken GROUP BY route, priority) AS c
    CROSS JOIN (VALUES (1, -1), (2, 1)) AS s (state, sign)
){turned}
SELECT
    CASE
        WHEN (SELECT found FROM apart) THEN -1
        WHEN (SELECT places FROM candidate) IS NULL THEN -2
        WHEN NOT EXISTS (SELECT FROM known) THEN -4
        ELSE coalesce(cardinality((SELECT places FROM near)), -3)
    END,
    {claimed}
FROM (VALUES (0)) AS always (one) LEFT JOIN {taken} AS t ON true
{order}

-- name: claim.by_wait
-- The first tasks, by their ranks after their waits. It is a part of claim.best; {apart} is claim.apart then, and there
-- are no {turned}, {places} and {order}.
head AS MATERIALIZED (
    SELECT
        h.at, l.queue, l.ranks[1 + width_bucket((SELECT at FROM now) - h.ready_at, l.afters)] AS rank,
        l.ranks[1] AS own_rank, h.ready_at - l.head_start AS mark, h.id, l.top, l.due, l.passed
    FROM line AS l CROSS JOIN LATERAL ({first}) AS h
)

-- name: claim.apart
-- The groups that claim.by_wait knows nothing of.
g.keyed OR g.fair

-- name: claim.keyed_apart
-- The groups that claim.by_fair_turn knows nothing of.
g.keyed

-- name: claim.by_fair_turn
-- The first tasks of the lines of a single queue: of fair tasks by their turns, of the others by their wait, with the
-- turns that these have together (see `fairlead.core.queues.fairness`). It is a part of claim.best, for orders of service
-- in which each priority has a rank of its own; {apart} is claim.keyed_apart then, {turned} is claim.fair_turned, {places}
-- claim.fair_places, {taken} claim.fair_taken and {order} claim.fair_order. Nothing is served by age: if a task has been
-- promoted the oldest of its priority has, and there is a row that says so.
state AS MATERIALIZED (
    SELECT
        p.priority, m.base, m.reached, m.others, coalesce(nullif(m.others, 0), m.reached + {step}) AS turn_of_others,
        (SELECT l.ranks[1] FROM line AS l WHERE l.priority = p.priority LIMIT 1) AS own_rank
    FROM (VALUES (0::smallint), (1::smallint), (2::smallint), (3::smallint)) AS p (priority)
    CROSS JOIN LATERAL (
        SELECT
            coalesce(max(y.reached), 0) AS reached, coalesce(max(y.base), 0) AS base,
            coalesce(max(y.others) FILTER (WHERE y.base = y.newest), 0) AS others
        FROM (
            SELECT y.*, max(y.base) OVER () AS newest
            FROM (
                SELECT y.reached, y.others, y.base
                FROM {schema}.line_turn AS y
                WHERE y.queue = ($9::text[])[1] AND y.priority = p.priority
                ORDER BY y.id DESC
                LIMIT 16
            ) AS y
        ) AS y
    ) AS m
),
head AS MATERIALIZED (
    SELECT
        h.at, l.ranks[1] AS rank, l.ranks[1] AS own_rank, h.place AS mark, h.id, l.top, l.due, l.priority,
        NULL::bigint AS number
    FROM line AS l CROSS JOIN LATERAL ({first_by_turn}) AS h
    WHERE l.fair
    UNION ALL
    SELECT
        n.at, n.rank, n.rank, CASE n.number
            WHEN 1 THEN s.turn_of_others ELSE greatest(s.reached, s.turn_of_others) + (n.number - 1) * {step}
        END, n.id, n.top, n.due, n.priority, n.number
    FROM (
        SELECT
            h.at, h.id, l.ranks[1] AS rank, l.top, l.due, l.priority,
            row_number() OVER (PARTITION BY l.priority ORDER BY h.ready_at, h.id, h.at) AS number
        FROM line AS l CROSS JOIN LATERAL ({first}) AS h
        WHERE NOT l.fair
    ) AS n
    JOIN state AS s ON s.priority = n.priority
    UNION ALL
    SELECT NULL, -1, 0, 0, NULL, -1, 0, l.priority, NULL
    FROM line AS l
    CROSS JOIN LATERAL (
        SELECT t.ready_at
        FROM {schema}.task AS t
        WHERE t.lane_group = l.lane_group AND t.priority = l.priority AND t.state = 1
            AND (t.ready_at, t.id) >= (l.from_ready_at, l.from_id)
        ORDER BY t.ready_at, t.id
        LIMIT 1
    ) AS h
    WHERE l.ranks[1 + width_bucket((SELECT at FROM now) - h.ready_at, l.afters)] < l.ranks[1]
)

-- name: claim.fair_places
-- What is to be known of those taken where turns go on by that. It is a part of claim.best.
t.place, t.id,

-- name: claim.fair_turned
-- Say how far turns have come. It is a part of claim.best.
,
turned AS (
    INSERT INTO {schema}.line_turn (queue, priority, reached, others, base)
    SELECT ($9::text[])[1], s.priority, n.reached, n.others, s.base
    FROM state AS s
    JOIN (
        SELECT t.priority, max(t.place) AS place, count(*) FILTER (WHERE t.place IS NULL) AS others
        FROM taken AS t
        GROUP BY t.priority
    ) AS f ON f.priority = s.priority
    -- The last of the fair tasks: who comes behind it takes turns with nobody.
    JOIN LATERAL (
        SELECT h.mark, h.id FROM head AS h WHERE h.priority = s.priority AND h.number IS NULL AND h.rank >= 0
        ORDER BY h.mark DESC, h.id DESC LIMIT 1
    ) AS e ON true
    CROSS JOIN LATERAL (
        SELECT
            bool_or(true) AS wait,
            max(h.mark) FILTER (WHERE h.number <= f.others AND (h.mark, h.id) < (e.mark, e.id)) AS turn
        FROM head AS h WHERE h.priority = s.priority AND h.number IS NOT NULL
    ) AS o
    CROSS JOIN LATERAL (
        SELECT
            greatest(s.reached, f.place, o.turn) AS reached,
            CASE
                WHEN o.turn IS NOT NULL THEN greatest(s.reached, o.turn) + {step}
                WHEN f.place IS NOT NULL AND o.wait THEN s.turn_of_others
                ELSE s.others
            END AS others
    ) AS n
    WHERE (n.reached, n.others) <> (s.reached, s.others)
)

-- name: claim.fair_taken
-- Those taken, each with its place among those of its kind. It is a part of claim.best.
(
    SELECT
        t.*,
        row_number() OVER (PARTITION BY t.priority, t.place IS NULL ORDER BY t.place, t.ready_at, t.id) AS number
    FROM taken AS t
)

-- name: claim.fair_order
-- Best first. It is a part of claim.best.
LEFT JOIN state AS s ON s.priority = t.priority
ORDER BY s.own_rank, CASE
    WHEN t.place IS NOT NULL THEN t.place
    WHEN t.number = 1 THEN s.turn_of_others
    ELSE greatest(s.reached, s.turn_of_others) + (t.number - 1) * {step}
END, t.id

-- name: claim.from
-- Where the claims of a type set begin in a lane group: at its bound, or before that where a task was made ready. It is
-- a part of claim.best, claim.heads and bounds.move.
CASE WHEN v.lowered <= v.bounds[p.priority + 1] THEN v.lowered
    ELSE coalesce(v.bounds[p.priority + 1], -9223372036854775808) END AS from_ready_at,
CASE WHEN v.lowered <= v.bounds[p.priority + 1] THEN '00000000-0000-0000-0000-000000000000'
    ELSE coalesce(v.bound_ids[p.priority + 1], '00000000-0000-0000-0000-000000000000') END AS from_id

-- name: claim.of_all
-- The first tasks of a lane group and priority, of any type. It is a part of claim.best, claim.heads and claim.turns;
-- {wait} is ready_at, or place where it is by turn, and {begun} that a task is not before where the claim begins.
SELECT t.ctid AS at, t.route, t.{wait}, t.id
FROM {schema}.task AS t
WHERE t.lane_group = l.lane_group AND t.priority = l.priority AND t.state = 1
    AND {begun}
ORDER BY t.{wait}, t.id
LIMIT {reach}

-- name: claim.of_groups
-- The first tasks of a lane group and priority that are of types to be taken; up to {window} tasks are looked at. Where
-- these end, if they were not enough, is a row without a place. It is a part of claim.best and claim.heads.
WITH found AS MATERIALIZED (
    SELECT w.at, w.route, w.{wait}, w.id
    FROM (
        SELECT t.ctid AS at, t.route, t.{wait}, t.id
        FROM {schema}.task AS t
        WHERE t.lane_group = l.lane_group AND t.priority = l.priority AND t.state = 1
            AND {begun}
        ORDER BY t.{wait}, t.id
        LIMIT {window}
    ) AS w
    WHERE {admitted} {open_route}
    ORDER BY w.{wait}, w.id
    LIMIT {reach}
)
SELECT f.at, f.route, f.{wait}, f.id FROM found AS f
UNION ALL
SELECT e.*
FROM (
    SELECT NULL::tid, NULL::int, t.{wait}, t.id
    FROM {schema}.task AS t
    WHERE t.lane_group = l.lane_group AND t.priority = l.priority AND t.state = 1
        AND {begun}
    ORDER BY t.{wait}, t.id
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
        SELECT r.id AS route FROM served AS v JOIN {schema}.route AS r ON r.lane_group = v.id WHERE NOT v.apart
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
-- {turns} is claim.turns if tasks that take turns may wait; {keyed} is claim.keyed where it must be known if tasks with
-- concurrency keys do.
--
-- Returns the server's clock, queue, lane group, priority, type, when the wait began, id and what kind of row it is: 0 of
-- tasks that take no turns, 1 of such that do. They are in the order of kind, lane group and priority and then of the
-- wait. A row without a type says that there are other tasks from there on.
WITH {known},
served AS MATERIALIZED (
    SELECT
        g.id, g.queue, g.fair, b.ready_at AS bounds, b.id AS bound_ids,
        (SELECT w.ready_at FROM {schema}.lowered AS w WHERE w.lane_group = g.id ORDER BY w.ready_at LIMIT 1) AS lowered
    FROM {schema}.lane_group AS g
    LEFT JOIN {schema}.bound AS b ON b.lane_group = g.id AND b.type_set = $3::bigint
    WHERE g.queue = ANY ($1::text[]) AND g.requires <@ $2::text[] AND NOT g.keyed
),
line AS MATERIALIZED (
    SELECT v.id AS lane_group, v.queue, v.fair, p.priority, {from}
    FROM served AS v CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint), (3::smallint)) AS p (priority)
)
SELECT
    (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), f.queue, f.lane_group, f.priority,
    CASE
        WHEN f.at IS NULL THEN NULL
        WHEN $4::boolean THEN (SELECT r.type FROM {schema}.route AS r WHERE r.id = f.route)
        ELSE ''
    END,
    f.ready_at, f.id::text, f.kind
FROM (
    SELECT l.queue, l.lane_group, l.priority, h.at, h.route, h.ready_at, h.id, l.fair::int AS kind
    FROM line AS l CROSS JOIN LATERAL ({first}) AS h
    {turns}
    {keyed}
) AS f
ORDER BY f.kind, f.lane_group, f.priority, f.ready_at, f.id, f.at NULLS LAST

-- name: claim.turns
-- The same by turn, kind 2, and how far the turns of lines have come, of the latest claims: when the wait began is then
-- what was reached, kind 3, the turn of the others, kind 4, and where the line began, kind 5. It is a part of claim.heads.
UNION ALL
SELECT l.queue, l.lane_group, l.priority, h.at, h.route, h.place, h.id, 2
FROM line AS l CROSS JOIN LATERAL ({first_by_turn}) AS h
WHERE l.fair
UNION ALL
SELECT n.queue, 0, n.priority, NULL, NULL, c.value, NULL, c.kind
FROM (SELECT DISTINCT l.queue, l.priority FROM line AS l WHERE l.fair) AS n
CROSS JOIN LATERAL (
    SELECT max(y.reached) AS reached, max(y.others) FILTER (WHERE y.base = y.newest) AS others, max(y.base) AS base
    FROM (
        SELECT y.*, max(y.base) OVER () AS newest
        FROM (
            SELECT y.reached, y.others, y.base
            FROM {schema}.line_turn AS y
            WHERE y.queue = n.queue AND y.priority = n.priority
            ORDER BY y.id DESC
            LIMIT 16
        ) AS y
    ) AS y
) AS m
CROSS JOIN LATERAL (VALUES (3, m.reached), (4, m.others), (5, m.base)) AS c (kind, value)

-- name: claim.keyed
-- Kind 6: tasks with concurrency keys wait that the worker may serve. It is a part of claim.heads.
UNION ALL
SELECT NULL, 0, 0::smallint, NULL, NULL, 0, NULL, 6
WHERE EXISTS (
    SELECT FROM {schema}.lane_group AS g
    WHERE g.queue = ANY ($1::text[]) AND g.requires <@ $2::text[] AND g.keyed
        AND (
            SELECT true FROM {schema}.task AS t WHERE t.lane_group = g.id AND t.state = 1
            ORDER BY t.priority, t.ready_at, t.id LIMIT 1
        )
)

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

-- name: claim.take
-- Take these tasks, as many as are still ready and not being taken by others. {turned} is claim.turned if turns have gone
-- on by that.
--
-- $1 bigint  now, null for the server's clock
-- $2 bigint  how long the leases last unless renewed
-- $3 bigint  how long past its timeout an attempt may hold its lease
-- $4 text    lease token
-- $5 text    worker
-- $6 bigint  the most tasks to take
-- $7 uuid[]  ids, best first
--
-- Returns the tasks taken, best first, each with its number.
WITH now AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS at
),
locked AS MATERIALIZED (
    SELECT t.id, g.number
    FROM unnest($7::uuid[]) WITH ORDINALITY AS g (id, number) JOIN {schema}.task AS t ON t.id = g.id
    WHERE t.state = 1
    ORDER BY g.number
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
    RETURNING k.number, t.route, {claimed}
),
tallied AS (
    INSERT INTO {schema}.tally
    SELECT c.route, c.priority, s.state, s.sign * c.tasks
    FROM (SELECT route, priority, count(*) AS tasks FROM taken GROUP BY route, priority) AS c
    CROSS JOIN (VALUES (1, -1), (2, 1)) AS s (state, sign)
){turned}
SELECT t.number, {claimed} FROM taken AS t ORDER BY t.number

-- name: claim.turned
-- Say how far the turns of lines have come. It is a part of claim.take.
--
-- $8 text[]      queues
-- $9 smallint[]  priorities
-- $10 bigint[]   the turns that were reached
-- $11 bigint[]   those of the tasks without a fair key
-- $12 bigint[]   where the lines began
,
turned AS (
    INSERT INTO {schema}.line_turn (queue, priority, reached, others, base)
    SELECT * FROM unnest($8::text[], $9::smallint[], $10::bigint[], $11::bigint[], $12::bigint[])
)

-- name: claim.held
-- The tasks under one lease token.
--
-- $1 text  token
SELECT {columns} FROM {schema}.task AS t WHERE t.state = 2 AND t.token = $1::text
