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
