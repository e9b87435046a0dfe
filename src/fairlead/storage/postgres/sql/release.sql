-- Let those who wait for tasks know that these have ended, in the transaction that ended them.
--
-- $1 uuid[]     tasks that have ended   $2 boolean[]  whether each completed
--
-- Who has nothing left to wait for has an alarm at once.
--
-- Returns those of the ended tasks that someone waited for who has nothing left to wait for.
WITH gone AS (
    DELETE FROM {schema}.dependent AS d
    USING unnest($1::uuid[], $2::boolean[]) AS e (id, completed)
    WHERE d.parent = e.id
    RETURNING d.parent, d.id, e.completed
),
ends AS MATERIALIZED (
    SELECT id, count(*) AS ended, count(*) FILTER (WHERE NOT completed) AS unmet FROM gone GROUP BY id
),
counted AS (
    UPDATE {schema}.task AS t
    SET pending = nullif(t.pending - e.ended, 0), unmet = nullif(coalesce(t.unmet, 0) + e.unmet, 0),
        version = t.version + e.ended, alarm = CASE WHEN t.pending <= e.ended THEN 0 END
    FROM ends AS e
    WHERE t.id = e.id AND t.state = 0 AND t.alarm IS NULL
    RETURNING t.id, t.pending
)
SELECT DISTINCT g.parent::text FROM gone AS g JOIN counted AS c ON c.id = g.id WHERE c.pending IS NULL
