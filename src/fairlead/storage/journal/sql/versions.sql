-- The versions and states of tasks.
--
-- $1 uuid[]  ids
SELECT id, version, state FROM {schema}.status WHERE id = ANY ($1::uuid[])
