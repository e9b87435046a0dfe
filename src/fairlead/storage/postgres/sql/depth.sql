-- How many tasks wait in queues that have a bound. The caller holds the queues' locks, so the sum stands until it
-- commits, but for tasks that are claimed or added without a bound meanwhile.
--
-- $1 text[]  queues
--
-- Returns queue and number of waiting tasks, for those that ever had one.
SELECT r.queue, coalesce(sum(y.tasks), 0)::bigint
FROM {schema}.route AS r JOIN {schema}.tally AS y ON y.route = r.id
WHERE r.queue = ANY ($1::text[]) AND y.state IN (0, 1)
GROUP BY r.queue
