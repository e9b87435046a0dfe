-- Remove ended tasks whose retention is over.
--
-- $1 bigint  the most to remove
--
-- Returns how many were removed.
WITH old AS MATERIALIZED (
    SELECT id FROM {schema}.status WHERE state >= 3 AND alarm <= {schema}.now()
    ORDER BY alarm LIMIT $1::bigint FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM {schema}.status WHERE id = ANY (ARRAY(SELECT id FROM old)) RETURNING id
), bodies AS (
    DELETE FROM {schema}.task WHERE id = ANY (ARRAY(SELECT id FROM old))
)
SELECT count(*) FROM gone
