-- Make sure that routes exist.
--
-- $1 text[]  their names, distinct and sorted
-- $2 text[]  their queues
-- $3 text[]  their types
-- $4 text[]  their capability sets, each as a JSON array
-- $5 boolean[]  whether their tasks have concurrency keys
--
-- Returns nothing.
INSERT INTO {schema}.route (name, queue, type, requires, keyed)
SELECT g.name, g.queue, g.type, ARRAY(SELECT jsonb_array_elements_text(g.requires::jsonb)), g.keyed
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::boolean[]) AS g (name, queue, type, requires, keyed)
WHERE NOT EXISTS (SELECT FROM {schema}.route AS r WHERE r.name = g.name)
ON CONFLICT (name) DO NOTHING
