-- How many tasks of some keys are executing. The caller has the queues' turn, so none becomes more.
--
-- $1 text[]   queues
-- $2 bytea[]  keys
--
-- Returns queue, key and number, of those that have any.
SELECT r.queue, t.concurrency_key, count(*)
FROM {schema}.task AS t JOIN {schema}.route AS r ON r.id = t.route
WHERE t.state = 2 AND t.concurrency_key = ANY ($2::bytea[]) AND r.queue = ANY ($1::text[])
GROUP BY r.queue, t.concurrency_key
