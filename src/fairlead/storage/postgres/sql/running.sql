-- How many tasks of each type are executing in some queues. The caller has the queues' turn, so none becomes more.
--
-- $1 text[]  queues
--
-- Returns queue, type and number.
SELECT r.queue, r.type, sum(y.tasks)::bigint
FROM {schema}.route AS r JOIN {schema}.tally AS y ON y.route = r.id
WHERE r.queue = ANY ($1::text[]) AND y.state = 2
GROUP BY r.queue, r.type
