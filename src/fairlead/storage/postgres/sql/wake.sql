-- Let the keys come to the front that someone spoke of, that may go on by now, or that were full by another limit.
--
-- $1 text[]  queues
-- $2 text[]  the limit of each one's keys
-- $3 bigint  now
--
-- Returns nothing.
WITH asked AS MATERIALIZED (
    SELECT queue, under FROM unnest($1::text[], $2::text[]) AS q (queue, under)
),
nudged AS (
    DELETE FROM {schema}.nudge AS n
    WHERE n.ctid = ANY (ARRAY(SELECT m.ctid FROM {schema}.nudge AS m WHERE m.queue = ANY ($1::text[]) LIMIT 5000))
    RETURNING n.queue, n.key
),
woken AS MATERIALIZED (
    SELECT queue, key FROM nudged
    UNION
    SELECT a.queue, l.key
    FROM asked AS a CROSS JOIN LATERAL (
        SELECT key FROM {schema}.look AS l WHERE l.queue = a.queue AND l.at <= $3::bigint ORDER BY l.at LIMIT 1000
    ) AS l
    UNION
    SELECT a.queue, l.key
    FROM asked AS a CROSS JOIN LATERAL (
        SELECT key FROM {schema}.look AS l WHERE l.queue = a.queue AND l.under < a.under LIMIT 1000
    ) AS l
    UNION
    SELECT a.queue, l.key
    FROM asked AS a CROSS JOIN LATERAL (
        SELECT key FROM {schema}.look AS l WHERE l.queue = a.queue AND l.under > a.under LIMIT 1000
    ) AS l
),
looked AS (
    DELETE FROM {schema}.look AS l USING woken AS w WHERE l.queue = w.queue AND l.key = w.key
)
INSERT INTO {schema}.front (route, priority, ready_at, id, key)
SELECT r.id, p.priority, h.ready_at, h.id, w.key
FROM woken AS w
JOIN {schema}.route AS r ON r.queue = w.queue AND r.keyed
CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint), (3::smallint)) AS p (priority)
CROSS JOIN LATERAL (
    SELECT t.ready_at, t.id
    FROM {schema}.task AS t
    WHERE t.route = r.id AND t.concurrency_key = w.key AND t.priority = p.priority AND t.state = 1
    ORDER BY t.ready_at, t.id
    LIMIT 1
) AS h
ON CONFLICT DO NOTHING
