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
