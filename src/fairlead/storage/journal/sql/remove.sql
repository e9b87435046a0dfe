-- Remove tasks.
--
-- $1 uuid[]  ids
WITH gone AS (DELETE FROM {schema}.status WHERE id = ANY ($1::uuid[]))
DELETE FROM {schema}.task WHERE id = ANY ($1::uuid[])
