-- How the whole store stands: one row per lane that has tasks.
--
-- Returns queue, type, capability set, priority, whether its tasks have concurrency keys, states, tasks in each, when the wait of its head began, and (the same
-- in every row) the earliest alarm.
WITH counted AS MATERIALIZED (
    SELECT y.route, y.priority, y.state, sum(y.tasks)::bigint AS tasks
    FROM {schema}.tally AS y
    GROUP BY y.route, y.priority, y.state
    HAVING sum(y.tasks) <> 0
)
SELECT
    r.queue, r.type, r.requires, c.priority, r.keyed, array_agg(c.state), array_agg(c.tasks),
    (
        SELECT t.ready_at FROM {schema}.task AS t
        WHERE t.route = r.id AND t.priority = c.priority AND t.state = 1
        ORDER BY t.ready_at
        LIMIT 1
    ),
    least(
        (SELECT alarm FROM {schema}.task WHERE state = 2 AND alarm IS NOT NULL ORDER BY alarm LIMIT 1),
        (SELECT alarm FROM {schema}.task WHERE state <> 2 AND alarm IS NOT NULL ORDER BY alarm LIMIT 1)
    )
FROM counted AS c JOIN {schema}.route AS r ON r.id = c.route
GROUP BY r.id, c.priority
