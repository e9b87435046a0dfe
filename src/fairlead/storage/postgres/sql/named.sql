-- How tasks stand that others are to wait for. None of them can end before this transaction does.
--
-- $1 uuid[]  ids
--
-- Returns id and state of those that are there. They are locked in order of id, as changes lock them.
SELECT t.id::text, t.state FROM {schema}.task AS t WHERE t.id = ANY ($1::uuid[]) ORDER BY t.id FOR UPDATE
