-- name: change.add
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

-- name: change.update
-- Replace how tasks stand, where the given version is higher: the same again changes nothing.
--
-- $1 boolean  whether the hot store has yet to get them
-- $2 bigint   how long an ended task stays in the hot store
-- $3…$13      columns: id, version, beats, ended_at, alarm, kept until, state, priority, worker, error, status
--
-- Returns the ids that were replaced.
UPDATE {schema}.status AS s
SET version = g.version,
    beats = g.beats,
    ended_at = g.ended_at,
    alarm = g.alarm,
    accepted_at = CASE WHEN $1::boolean AND g.state < 2 THEN {schema}.now() END,
    leaves_at = CASE WHEN g.state >= 3 THEN greatest({schema}.now() + $2::bigint, g.kept) END,
    state = g.state,
    priority = g.priority,
    worker = g.worker,
    error = g.error,
    status = g.status
FROM unnest(
    $3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::smallint[], $10::smallint[],
    $11::text[], $12::text[], $13::bytea[]
) AS g (id, version, beats, ended_at, alarm, kept, state, priority, worker, error, status)
WHERE s.id = g.id AND s.version < g.version
RETURNING s.id

-- name: change.remove
-- Remove tasks.
--
-- $1 uuid[]  ids
WITH gone AS (DELETE FROM {schema}.status WHERE id = ANY ($1::uuid[]))
DELETE FROM {schema}.task WHERE id = ANY ($1::uuid[])

-- name: change.set_aside
-- Remove a task that cannot be decoded, if its packed columns are still these.
--
-- $1 uuid  id      $2 bytea  spec      $3 bytea  status
--
-- Returns one row: how many were removed, and whether there is a task of this id.
WITH found AS MATERIALIZED (
    SELECT s.id
    FROM {schema}.status AS s JOIN {schema}.task AS t ON t.id = s.id
    WHERE s.id = $1::uuid AND t.spec = $2::bytea AND s.status = $3::bytea
    FOR UPDATE
),
status_gone AS (
    DELETE FROM {schema}.status AS s USING found AS f WHERE s.id = f.id
),
task_gone AS (
    DELETE FROM {schema}.task AS t USING found AS f WHERE t.id = f.id
)
SELECT (SELECT count(*) FROM found), EXISTS (SELECT FROM {schema}.status WHERE id = $1::uuid)

-- name: change.prune
-- Remove ended tasks whose retention is over.
--
-- $1 bigint  the most to remove
--
-- Returns how many were removed.
WITH old AS MATERIALIZED (
    SELECT id FROM {schema}.status WHERE state >= 3 AND alarm <= {schema}.now()
    ORDER BY alarm LIMIT $1::bigint FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM {schema}.status WHERE id = ANY (ARRAY(SELECT id FROM old)) RETURNING id
), bodies AS (
    DELETE FROM {schema}.task WHERE id = ANY (ARRAY(SELECT id FROM old))
)
SELECT count(*) FROM gone

-- name: change.lock
-- Keep those who put tasks back into the hot store and those who change a task that is not there apart, until commit.
--
-- $1 text  the schema
-- {kind} is empty for the one who changes, `_shared` for those who put back.
SELECT pg_advisory_xact_lock{kind}(hashtext('fairlead journal'), hashtext($1::text))
