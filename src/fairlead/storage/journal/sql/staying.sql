-- One page of the ended tasks that stay in the hot store for now.
--
-- $1 bigint, $2 uuid  beyond which leaves_at and id   $3 bigint  the most to return
SELECT t.spec, s.status, s.leaves_at
FROM {schema}.status AS s JOIN {schema}.task AS t ON t.id = s.id
WHERE (s.leaves_at, s.id) > (greatest($1::bigint, {schema}.now()), $2::uuid)
ORDER BY s.leaves_at, s.id
LIMIT $3::bigint
