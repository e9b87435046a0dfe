-- name: bounds.survey
-- What a claim is to expect.
--
-- $1 text[]  queues
-- $2 text[]  the worker's capabilities
-- $3 text    the digest of the types that it may take
-- $4 bigint  how many lanes are counted at most
--
-- Returns one row: the types of the lanes without concurrency keys, one for each lane, whether tasks with keys wait
-- and such as take turns, the number of the type set, null if it is not known, and whether there are routes of which it is not known whether they
-- are of its types.
SELECT
    ARRAY(
        SELECT r.type
        FROM {schema}.lane_group AS g JOIN {schema}.route AS r ON r.lane_group = g.id
        WHERE g.queue = ANY ($1::text[]) AND g.requires <@ $2::text[] AND NOT g.keyed
        LIMIT $4::bigint
    ),
    EXISTS (
        SELECT FROM {schema}.lane_group AS g
        WHERE g.queue = ANY ($1::text[]) AND g.requires <@ $2::text[] AND g.keyed
            AND (
                SELECT true FROM {schema}.task AS t WHERE t.lane_group = g.id AND t.state = 1
                ORDER BY t.priority, t.ready_at, t.id LIMIT 1
            )
    ),
    EXISTS (
        SELECT FROM {schema}.lane_group AS g
        WHERE g.queue = ANY ($1::text[]) AND g.requires <@ $2::text[] AND g.fair
            AND (
                SELECT true FROM {schema}.task AS t WHERE t.lane_group = g.id AND t.state = 1
                ORDER BY t.priority, t.ready_at, t.id LIMIT 1
            )
    ),
    s.id, s.last_route IS DISTINCT FROM (SELECT max(r.id) FROM {schema}.route AS r)
FROM (VALUES (0)) AS always (one) LEFT JOIN {schema}.type_set AS s ON s.digest = $3::text

-- name: bounds.know
-- Store a type set under its digest.
--
-- $1 text     digest
-- $2 boolean  whether it is all types but these
-- $3 text[]   types, distinct
--
-- Returns nothing.
WITH made AS (
    INSERT INTO {schema}.type_set (digest, excluding) VALUES ($1::text, $2::boolean)
    ON CONFLICT (digest) DO NOTHING
    RETURNING id
)
INSERT INTO {schema}.type_set_member (type_set, type) SELECT m.id, u.type FROM made AS m, unnest($3::text[]) AS u (type)

-- name: bounds.find_out
-- Find out of which routes the types are in a type set, so that claims need not look them up.
--
-- $1 bigint  its number
--
-- Each route has two bits: whether it was there, and whether its tasks may be taken. One whose number is among them and
-- that is committed later is not known then. No more than the last 65,536 are looked at.
--
-- Returns nothing.
WITH span AS MATERIALIZED (
    SELECT greatest(min(r.id), max(r.id) - 65535) AS first, max(r.id) AS last FROM {schema}.route AS r
),
packed AS MATERIALIZED (
    SELECT string_agg(set_byte('\x00', 0, coalesce(b.bits, 0)::int), ''::bytea ORDER BY n.place) AS routes
    FROM generate_series(0, (SELECT (last - first) / 4 FROM span)) AS n (place)
    LEFT JOIN (
        SELECT (r.id - p.first) / 4 AS place, sum((CASE WHEN s.excluding = (m.type IS NULL) THEN 3 ELSE 1 END) << (2 * ((r.id - p.first) % 4))) AS bits
        FROM span AS p
        JOIN {schema}.route AS r ON r.id BETWEEN p.first AND p.last
        JOIN {schema}.type_set AS s ON s.id = $1::bigint
        LEFT JOIN {schema}.type_set_member AS m ON m.type_set = s.id AND m.type = r.type
        GROUP BY 1
    ) AS b ON b.place = n.place
)
UPDATE {schema}.type_set AS s
SET first_route = p.first, last_route = p.last, routes = k.routes
FROM span AS p, packed AS k
WHERE s.id = $1::bigint AND s.last_route IS DISTINCT FROM p.last

-- name: bounds.use
-- Say that a type set is in use: one that was not for a day is forgotten.
--
-- $1 bigint  its number
--
-- Returns nothing.
WITH unused AS (
    SELECT s.id FROM {schema}.type_set AS s WHERE s.used_at < now() - interval '1 day' AND s.id <> $1::bigint
    FOR UPDATE SKIP LOCKED
),
unbound AS (
    DELETE FROM {schema}.bound AS b USING unused AS u WHERE b.type_set = u.id
),
emptied AS (
    DELETE FROM {schema}.type_set_member AS m USING unused AS u WHERE m.type_set = u.id
),
gone AS (
    DELETE FROM {schema}.type_set AS s USING unused AS u WHERE s.id = u.id
)
UPDATE {schema}.type_set AS s SET used_at = now() WHERE s.id = $1::bigint AND s.used_at < now() - interval '1 hour'

-- name: bounds.raise
-- Have those who make tasks of a queue ready from now on say so, if the tasks are below a moment.
--
-- $1 text    the queue
-- $2 bigint  the moment, null for the latest that waits
--
-- Whoever raises it at the same time does it for both.
--
-- Returns the least ceiling of the queue's groups, null if there are none.
WITH latest AS MATERIALIZED (
    SELECT coalesce(
        $2::bigint,
        (
            SELECT max(h.ready_at)
            FROM {schema}.lane_group AS g
            CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint), (3::smallint)) AS p (priority)
            CROSS JOIN LATERAL (
                SELECT t.ready_at
                FROM {schema}.task AS t
                WHERE t.lane_group = g.id AND t.priority = p.priority AND t.state = 1
                ORDER BY t.ready_at DESC, t.id DESC
                LIMIT 1
            ) AS h
            WHERE g.queue = $1::text AND NOT g.keyed
        )
    ) + 1 AS moment
),
free AS MATERIALIZED (
    SELECT g.id FROM {schema}.lane_group AS g WHERE g.queue = $1::text AND NOT g.keyed ORDER BY g.id FOR UPDATE SKIP LOCKED
),
raised AS (
    UPDATE {schema}.lane_group AS g SET ceiling = (SELECT moment FROM latest)
    FROM free AS f
    WHERE g.id = f.id AND g.ceiling < (SELECT moment FROM latest)
)
SELECT min(CASE WHEN f.id IS NULL THEN g.ceiling ELSE greatest(g.ceiling, (SELECT moment FROM latest)) END)
FROM {schema}.lane_group AS g LEFT JOIN free AS f ON f.id = g.id
WHERE g.queue = $1::text AND NOT g.keyed

-- name: bounds.writers
-- The transactions that have written tasks, or may be about to, and have not ended, but for those that always say that
-- they made tasks ready.
--
-- $1 text  the schema
--
-- Returns their names.
SELECT l.virtualtransaction
FROM pg_locks AS l
WHERE l.locktype = 'relation' AND l.relation = '{schema}.task'::regclass
    AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
    AND l.mode NOT IN ('AccessShareLock', 'RowShareLock') AND l.pid IS DISTINCT FROM pg_backend_pid()
    AND NOT EXISTS (
        SELECT FROM pg_locks AS a
        WHERE a.locktype = 'advisory' AND a.virtualtransaction = l.virtualtransaction AND a.granted AND a.objsubid = 2
            AND a.database = l.database
            AND a.classid = (hashtext('fairlead late')::bigint & 4294967295)::oid
            AND a.objid = (hashtext($1::text)::bigint & 4294967295)::oid
    )

-- name: bounds.turn
-- Whether this process is the one to move bounds, until the transaction ends.
--
-- $1 text  the schema
SELECT pg_try_advisory_xact_lock(hashtext('fairlead bounds'), hashtext($1::text))

-- name: bounds.move
-- Move the bounds of a type set in a queue to the first tasks that its claims may take, and no further than a moment:
-- all have ended that may make tasks ready before it and not say so. What was lowered is taken into all bounds.
--
-- $1 text     the queue
-- $2 bigint   the number of the type set
-- $3 bigint   the moment
-- $4 boolean  whether to look from the very beginning
--
-- Up to {reach} tasks of each priority are passed over. The caller has the turn, got by a statement of its own: what
-- this one sees is what is there since.
--
-- Returns nothing.
WITH {known},
served AS MATERIALIZED (
    SELECT
        g.id, greatest(g.settled, $3::bigint) AS settled, b.ready_at AS bounds, b.id AS bound_ids,
        (SELECT w.ready_at FROM {schema}.lowered AS w WHERE w.lane_group = g.id ORDER BY w.ready_at LIMIT 1) AS lowered
    FROM {schema}.lane_group AS g
    LEFT JOIN {schema}.bound AS b ON b.lane_group = g.id AND b.type_set = $2::bigint
    WHERE g.queue = $1::text AND NOT g.keyed
),
taken_in AS (
    DELETE FROM {schema}.lowered AS w USING served AS v WHERE w.lane_group = v.id
),
lowered AS (
    UPDATE {schema}.bound AS b
    SET ready_at = ARRAY(SELECT least(u.at, v.lowered) FROM unnest(b.ready_at) WITH ORDINALITY AS u (at, n) ORDER BY n),
        id = ARRAY(
            SELECT CASE WHEN u.at < v.lowered THEN b.id[u.n] ELSE '00000000-0000-0000-0000-000000000000' END
            FROM unnest(b.ready_at) WITH ORDINALITY AS u (at, n) ORDER BY n
        )
    FROM served AS v
    WHERE b.lane_group = v.id AND b.type_set <> $2::bigint AND v.lowered <= ANY (b.ready_at)
),
line AS MATERIALIZED (
    SELECT v.id AS lane_group, v.settled, p.priority, {from}
    FROM served AS v CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint), (3::smallint)) AS p (priority)
),
moved AS MATERIALIZED (
    SELECT
        l.lane_group, l.priority,
        CASE
            WHEN f.ready_at < l.settled THEN f.ready_at
            WHEN f.ready_at IS NOT NULL OR e.ready_at IS NULL THEN l.settled
            WHEN $4::boolean THEN l.from_ready_at
            ELSE least(e.ready_at, l.settled)
        END AS ready_at,
        CASE
            WHEN f.ready_at < l.settled THEN f.id
            WHEN f.ready_at IS NOT NULL OR e.ready_at IS NULL THEN '00000000-0000-0000-0000-000000000000'
            WHEN $4::boolean THEN l.from_id
            WHEN e.ready_at < l.settled THEN e.id
            ELSE '00000000-0000-0000-0000-000000000000'
        END AS id
    FROM line AS l
    -- The first that may be taken.
    LEFT JOIN LATERAL (
        SELECT w.ready_at, w.id
        FROM (
            SELECT t.ready_at, t.id, t.route
            FROM {schema}.task AS t
            WHERE t.lane_group = l.lane_group AND t.priority = l.priority AND t.state = 1
                AND ($4::boolean OR (t.ready_at, t.id) >= (l.from_ready_at, l.from_id))
            ORDER BY t.ready_at, t.id
            LIMIT {reach}
        ) AS w
        WHERE {admitted}
        ORDER BY w.ready_at, w.id
        LIMIT 1
    ) AS f ON true
    -- The end of what was looked at, if there is none and more behind it.
    LEFT JOIN LATERAL (
        SELECT t.ready_at, t.id
        FROM {schema}.task AS t
        WHERE f.ready_at IS NULL AND t.lane_group = l.lane_group AND t.priority = l.priority AND t.state = 1
            AND ($4::boolean OR (t.ready_at, t.id) >= (l.from_ready_at, l.from_id))
        ORDER BY t.ready_at, t.id
        OFFSET {reach} - 1
        LIMIT 1
    ) AS e ON true
),
settled AS (
    UPDATE {schema}.lane_group AS g SET settled = v.settled FROM served AS v WHERE g.id = v.id AND g.settled < v.settled
)
INSERT INTO {schema}.bound AS b (lane_group, type_set, ready_at, id)
SELECT m.lane_group, $2::bigint, array_agg(m.ready_at ORDER BY m.priority), array_agg(m.id ORDER BY m.priority)
FROM moved AS m
WHERE EXISTS (SELECT FROM known)
GROUP BY m.lane_group
ON CONFLICT (lane_group, type_set) DO UPDATE SET ready_at = excluded.ready_at, id = excluded.id
