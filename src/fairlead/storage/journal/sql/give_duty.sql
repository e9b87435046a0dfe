-- Give a duty back.
--
-- $1 text  its name   $2 bigint, $3 uuid  how far it was done
UPDATE {schema}.duty SET until = 0, at = $2::bigint, id = $3::uuid
WHERE name = $1::text AND (at, id) <= ($2::bigint, $3::uuid)
