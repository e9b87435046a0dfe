-- One page of a search, by id.
--
-- {conditions} is what is asked for, {order} is ASC or DESC. Values are written out, so that the plan suits them.
SELECT t.spec, s.status
FROM {schema}.status AS s JOIN {schema}.task AS t ON t.id = s.id
WHERE {conditions}
ORDER BY {side}.id {order}
LIMIT {limit}
