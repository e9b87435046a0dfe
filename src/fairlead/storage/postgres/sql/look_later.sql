-- Have keys that are full looked at later.
--
-- $1 text[]    queues
-- $2 bytea[]   keys
-- $3 bigint[]  from when on
-- $4 text[]    the limits by which they are full
--
-- Returns nothing.
INSERT INTO {schema}.look (queue, key, at, under)
SELECT * FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::text[])
ON CONFLICT (queue, key) DO UPDATE SET at = excluded.at, under = excluded.under
