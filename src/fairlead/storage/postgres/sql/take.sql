-- Take these tasks, as many as are still ready and not being taken by others.
--
-- $1 bigint  now
-- $2 bigint  when the leases end unless renewed
-- $3 bigint  how long past its timeout an attempt may hold its lease
-- $4 text    lease token
-- $5 text    worker
-- $6 bigint  the most tasks to take
-- $7 uuid[]  ids, best first
--
-- Returns the tasks taken, best first, each with its turn.
WITH locked AS MATERIALIZED (
    SELECT t.id, g.turn
    FROM unnest($7::uuid[]) WITH ORDINALITY AS g (id, turn) JOIN {schema}.task AS t ON t.id = g.id
    WHERE t.state = 1
    ORDER BY g.turn
    LIMIT $6::bigint
    FOR UPDATE OF t SKIP LOCKED
),
taken AS (
    UPDATE {schema}.task AS t
    SET state = 2, version = t.version + 1, attempts = t.attempts + 1, started_at = $1::bigint, token = $4::text,
        worker = $5::text, until = least($2::bigint, $1::bigint + t.timeout + $3::bigint),
        alarm = least($2::bigint, $1::bigint + t.timeout + $3::bigint)
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
