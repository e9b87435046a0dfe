-- One page of the ended tasks whose time in the hot store is over.
--
-- $1 bigint, $2 uuid  beyond which leaves_at and id   $3 bigint  the most to return
SELECT leaves_at, id, version, beats
FROM {schema}.status
WHERE (leaves_at, id) > ($1::bigint, $2::uuid) AND leaves_at <= {schema}.now()
ORDER BY leaves_at, id
LIMIT $3::bigint
