-- name: read.get
-- Tasks by their ids.
--
-- $1 uuid[]  ids
SELECT t.spec, s.status, s.id::text
FROM {schema}.status AS s JOIN {schema}.task AS t ON t.id = s.id
WHERE s.id = ANY ($1::uuid[])

-- name: read.versions
-- The versions and states of tasks.
--
-- $1 uuid[]  ids
SELECT id, version, state FROM {schema}.status WHERE id = ANY ($1::uuid[])

-- name: read.find
-- One page of a search, by id.
--
-- {conditions} is what is asked for, {order} is ASC or DESC. Values are written out, so that the plan suits them.
SELECT t.spec, s.status, s.id::text
FROM {schema}.status AS s JOIN {schema}.task AS t ON t.id = s.id
WHERE {conditions}
ORDER BY {side}.id {order}
LIMIT {limit}

-- name: read.live
-- One page of the tasks in a state, by id.
--
-- {state} is its number. $1 uuid  beyond which id   $2 bigint  the most to return
SELECT t.spec, s.status, s.id::text
FROM {schema}.status AS s JOIN {schema}.task AS t ON t.id = s.id
WHERE s.state = {state} AND s.id > $1::uuid
ORDER BY s.id
LIMIT $2::bigint

-- name: read.staying
-- One page of the ended tasks that stay in the hot store for now.
--
-- $1 bigint, $2 uuid  beyond which leaves_at and id   $3 bigint  the most to return
SELECT t.spec, s.status, s.id::text, s.leaves_at
FROM {schema}.status AS s JOIN {schema}.task AS t ON t.id = s.id
WHERE (s.leaves_at, s.id) > (greatest($1::bigint, {schema}.now()), $2::uuid)
ORDER BY s.leaves_at, s.id
LIMIT $3::bigint

-- name: read.leaving
-- One page of the ended tasks whose time in the hot store is over.
--
-- $1 bigint, $2 uuid  beyond which leaves_at and id   $3 bigint  the most to return
SELECT leaves_at, id, version, beats
FROM {schema}.status
WHERE (leaves_at, id) > ($1::bigint, $2::uuid) AND leaves_at <= {schema}.now()
ORDER BY leaves_at, id
LIMIT $3::bigint

-- name: read.accepted
-- One page of the tasks that were accepted a while ago and that the hot store has not told of yet.
--
-- $1 bigint, $2 uuid  beyond which accepted_at and id   $3 bigint  how long ago at least
-- $4 bigint  the most to return
SELECT accepted_at, id
FROM {schema}.status
WHERE (accepted_at, id) > ($1::bigint, $2::uuid) AND accepted_at <= {schema}.now() - $3::bigint
ORDER BY accepted_at, id
LIMIT $4::bigint

-- name: read.count_live
-- How many tasks are to be in the hot store.
SELECT (SELECT count(*) FROM {schema}.status WHERE state = 0)
    + (SELECT count(*) FROM {schema}.status WHERE state = 1)
    + (SELECT count(*) FROM {schema}.status WHERE state = 2)
    + (SELECT count(*) FROM {schema}.status WHERE leaves_at > {schema}.now())

-- name: read.location_of
-- The queue of a task, and its spec.
--
-- $1 uuid  id
SELECT queue, spec FROM {schema}.task WHERE id = $1::uuid
