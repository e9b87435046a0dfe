-- name: duties.take
-- Take a duty, unless someone has it.
--
-- $1 text  its name   $2 bigint  for how long
--
-- After the clock went back nobody has a duty for longer than it takes, and what was done up to a moment that is yet to
-- come is done from the beginning: there will be more before that moment.
--
-- Returns how far it was done: a moment and an id; no row when someone has it.
UPDATE {schema}.duty
SET until = {schema}.now() + $2::bigint,
    at = CASE WHEN at <= {schema}.now() THEN at ELSE 0 END
WHERE name = $1::text AND (until <= {schema}.now() OR until > {schema}.now() + 2 * $2::bigint)
RETURNING at, id

-- name: duties.keep
-- Keep a duty that one has.
--
-- $1 text  its name   $2 bigint  for how long from now on
UPDATE {schema}.duty SET until = {schema}.now() + $2::bigint WHERE name = $1::text

-- name: duties.give
-- Give a duty back.
--
-- $1 text  its name   $2 bigint, $3 uuid  how far it was done
UPDATE {schema}.duty SET until = 0, at = $2::bigint, id = $3::uuid
WHERE name = $1::text AND (at, id) <= ($2::bigint, $3::uuid)
