-- Replace many rows of the tally by their sums. Only rows that this statement deletes are in its sums, so it is exact
-- whatever runs beside it; the lock only spares several processes from doing the same work.
--
-- $1 text    the schema, as the name of the lock
-- $2 bigint  how few rows are left alone
--
-- Returns nothing.
WITH turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(hashtext('fairlead fold'), hashtext($1::text)) AS mine
),
batch AS MATERIALIZED (
    SELECT ctid AS at FROM {schema}.tally WHERE (SELECT mine FROM turn) LIMIT 20000
),
gone AS (
    DELETE FROM {schema}.tally AS y
    WHERE y.ctid = ANY (ARRAY(SELECT at FROM batch WHERE (SELECT count(*) FROM batch) > $2::bigint))
    RETURNING y.route, y.priority, y.state, y.tasks
)
INSERT INTO {schema}.tally
SELECT route, priority, state, sum(tasks) FROM gone GROUP BY route, priority, state HAVING sum(tasks) <> 0
