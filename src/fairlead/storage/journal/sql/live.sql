-- One page of the tasks in a state, by id.
--
-- {state} is its number. $1 uuid  beyond which id   $2 bigint  the most to return
SELECT t.spec, s.status
FROM {schema}.status AS s JOIN {schema}.task AS t ON t.id = s.id
WHERE s.state = {state} AND s.id > $1::uuid
ORDER BY s.id
LIMIT $2::bigint
