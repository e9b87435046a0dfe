-- Take a duty, unless someone has it.
--
-- $1 text  its name   $2 bigint  for how long
--
-- Returns how far it was done: a moment and an id; no row when someone has it.
UPDATE {schema}.duty SET until = {schema}.now() + $2::bigint
WHERE name = $1::text AND until <= {schema}.now()
RETURNING at, id
