-- Tasks by their ids.
--
-- $1 uuid[]  ids
SELECT t.spec, s.status
FROM {schema}.status AS s JOIN {schema}.task AS t ON t.id = s.id
WHERE s.id = ANY ($1::uuid[])
