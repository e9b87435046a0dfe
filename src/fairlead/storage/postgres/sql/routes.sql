-- name: routes.unused
-- The routes that have no task, in whatever state.
--
-- Returns their numbers.
SELECT r.id FROM {schema}.route AS r WHERE r.hidden_at IS NULL
EXCEPT
SELECT y.route FROM {schema}.tally AS y GROUP BY y.route, y.priority, y.state HAVING sum(y.tasks) <> 0

-- name: routes.in_use
-- Whether someone has made sure that routes exist, and may not have added the tasks for them yet.
SELECT EXISTS (
    SELECT FROM pg_locks AS l
    WHERE l.locktype = 'relation' AND l.relation = '{schema}.route'::regclass
        AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
        AND l.mode NOT IN ('AccessShareLock', 'RowShareLock') AND l.pid IS DISTINCT FROM pg_backend_pid()
)

-- name: routes.lock
-- Keep others from making sure that routes exist, until the transaction ends; fails if someone has just done so.
LOCK TABLE {schema}.route IN SHARE ROW EXCLUSIVE MODE NOWAIT

-- name: routes.hide
-- Take their names from routes, so that the next task of the kind finds none and makes another. Tasks that come to one
-- all the same, by a statement that began before, are found and served like any.
--
-- $1 int[]  routes
--
-- Returns nothing.
UPDATE {schema}.route AS r SET name = 'gone ' || r.id, hidden_at = now()
WHERE r.id = ANY ($1::int[]) AND r.hidden_at IS NULL

-- name: routes.forget
-- Remove routes that were hidden an hour ago and have no task, and the groups without routes. No statement that began
-- before is under way still.
--
-- Returns nothing.
WITH gone AS (
    DELETE FROM {schema}.route AS r
    WHERE r.id = ANY (ARRAY(
        SELECT h.id FROM {schema}.route AS h WHERE h.hidden_at < now() - interval '1 hour'
        EXCEPT
        SELECT y.route FROM {schema}.tally AS y GROUP BY y.route, y.priority, y.state HAVING sum(y.tasks) <> 0
    ))
    RETURNING r.id
),
empty AS MATERIALIZED (
    SELECT g.id, g.queue, g.keyed, g.fair FROM {schema}.lane_group AS g
    WHERE NOT EXISTS (
        SELECT FROM {schema}.route AS r WHERE r.lane_group = g.id AND r.id <> ALL (ARRAY(SELECT id FROM gone))
    )
),
unfronted AS (
    DELETE FROM {schema}.front AS f WHERE f.route = ANY (ARRAY(SELECT id FROM gone))
),
unbound AS (
    DELETE FROM {schema}.bound AS b WHERE b.lane_group = ANY (ARRAY(SELECT id FROM empty))
),
unturned AS (
    DELETE FROM {schema}.line_turn AS y WHERE y.queue = ANY (ARRAY(SELECT queue FROM empty WHERE fair))
        AND NOT EXISTS (
            SELECT FROM {schema}.lane_group AS g WHERE g.queue = y.queue AND g.fair AND g.id <> ALL (ARRAY(SELECT id FROM empty))
        )
),
unlowered AS (
    DELETE FROM {schema}.lowered AS w WHERE w.lane_group = ANY (ARRAY(SELECT id FROM empty))
),
unnudged AS (
    DELETE FROM {schema}.nudge AS n WHERE n.queue = ANY (ARRAY(SELECT queue FROM empty WHERE keyed))
        AND NOT EXISTS (
            SELECT FROM {schema}.lane_group AS g WHERE g.queue = n.queue AND g.keyed AND g.id <> ALL (ARRAY(SELECT id FROM empty))
        )
)
DELETE FROM {schema}.lane_group AS g WHERE g.id = ANY (ARRAY(SELECT id FROM empty))
