-- Write down new tasks. Those whose id is there are left as they are.
--
-- $1 boolean  whether they are accepted only, and the hot store has yet to get them
-- $2 bigint   how long an ended task stays in the hot store
-- $3…$9       columns of task: id, created_at, queue, type, tags, parameters, spec
-- $10…$19     columns of status: version, beats, ended_at, alarm, kept until, state, priority, worker, error, status
--
-- {parameters} is how parameters become jsonb.
-- Returns the ids that were written.
WITH given AS MATERIALIZED (
    SELECT *
    FROM unnest(
        $3::uuid[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bytea[], $9::bytea[],
        $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::smallint[], $16::smallint[],
        $17::text[], $18::text[], $19::bytea[]
    ) AS g (
        id, created_at, queue, type, tags, parameters, spec,
        version, beats, ended_at, alarm, kept, state, priority, worker, error, status
    )
), asked AS (
    INSERT INTO {schema}.task (id, created_at, queue, type, tags, parameters, spec)
    SELECT id, created_at, queue, type, tags::jsonb, {parameters}, spec FROM given
    ON CONFLICT (id) DO NOTHING
)
INSERT INTO {schema}.status (
    id, version, beats, ended_at, alarm, accepted_at, leaves_at, state, priority, worker, error, status
)
SELECT
    id, version, beats, ended_at, alarm,
    CASE WHEN $1::boolean AND state < 3 THEN {schema}.now() END,
    CASE WHEN state >= 3 THEN greatest({schema}.now() + $2::bigint, kept) END,
    state, priority, worker, error, status
FROM given
ON CONFLICT (id) DO NOTHING
RETURNING id
