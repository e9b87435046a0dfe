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
