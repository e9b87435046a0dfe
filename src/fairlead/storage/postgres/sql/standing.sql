-- Why tasks cannot be added: the id is stored, or the key is held.
--
-- $1 bigint   now
-- $2 uuid[]   ids
-- $3 text[]   queues
-- $4 bytea[]  keys, null for none
--
-- Returns for each task, in order: whether the id is stored, and the id of the task that holds its key.
SELECT
    EXISTS (SELECT FROM {schema}.task AS t WHERE t.id = g.id),
    (SELECT k.holder::text FROM {schema}.key AS k WHERE k.queue = g.queue AND k.key = g.key AND k.until > $1::bigint)
FROM unnest($2::uuid[], $3::text[], $4::bytea[]) WITH ORDINALITY AS g (id, queue, key, place)
ORDER BY g.place
