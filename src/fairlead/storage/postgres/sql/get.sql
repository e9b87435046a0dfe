-- Tasks by id.
--
-- $1 uuid[]  ids
--
-- Returns those that are there, in no order.
SELECT {columns} FROM {schema}.task AS t WHERE t.id = ANY ($1::uuid[])
