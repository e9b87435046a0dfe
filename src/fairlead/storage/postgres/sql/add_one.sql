-- Store one new task as almost every submit makes it: never tried, without key and tags. It fails if the id is known or
-- the route does not exist. What add_new.sql does for a batch in half the time, because most of that is for starting
-- the parts of a larger plan.
--
-- $1 text     the channel to tell of a task that is ready
-- $2 text     the name of its route
-- $3 uuid     id
-- $4 bigint   priority
-- $5 bigint   state
-- $6 bigint   ready_at
-- $7 bigint   timeout
-- $8 bigint   alarm
-- $9 bigint   created_at
-- $10 bytea   spec
-- $11 bytea   rest
--
-- Returns nothing of use.
WITH route AS MATERIALIZED (
    SELECT r.id, r.queue FROM {schema}.route AS r WHERE r.name = $2::text
),
added AS (
    INSERT INTO {schema}.task (
        id, ready_at, timeout, alarm, created_at, version, beats, attempts, route, priority, state, cancel_asked, rest,
        spec
    )
    VALUES (
        $3::uuid, $6::bigint, $7::bigint, $8::bigint, $9::bigint, 1, 0, 0, (SELECT id FROM route), $4::bigint,
        $5::bigint, false, $11::bytea, $10::bytea
    )
),
tallied AS (
    INSERT INTO {schema}.tally VALUES ((SELECT id FROM route), $4::bigint, $5::bigint, 1)
)
SELECT CASE WHEN $5::bigint = 1 THEN pg_notify($1::text, (SELECT queue FROM route) || ' 1') END
