-- Have keys looked at by the next claim.
--
-- $1 text[]   queues
-- $2 bytea[]  keys
--
-- Returns nothing.
INSERT INTO {schema}.nudge (queue, key) SELECT * FROM unnest($1::text[], $2::bytea[])
