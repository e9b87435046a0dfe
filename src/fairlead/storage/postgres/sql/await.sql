-- Take note of who waits for whom, in the transaction that looked at those waited for.
--
-- $1 uuid[]  tasks that are waited for   $2 uuid[]  for each of them, the task that waits
--
-- Returns nothing.
WITH linked AS (
    INSERT INTO {schema}.dependent (parent, id) SELECT * FROM unnest($1::uuid[], $2::uuid[]) ON CONFLICT DO NOTHING
)
UPDATE {schema}.task SET awaited = true WHERE id = ANY ($1::uuid[]) AND awaited IS NULL
