-- One page of the tasks that were accepted a while ago and that the hot store has not told of yet.
--
-- $1 bigint, $2 uuid  beyond which accepted_at and id   $3 bigint  how long ago at least   $4 bigint  the most to return
SELECT accepted_at, id
FROM {schema}.status
WHERE (accepted_at, id) > ($1::bigint, $2::uuid) AND accepted_at <= {schema}.now() - $3::bigint
ORDER BY accepted_at, id
LIMIT $4::bigint
