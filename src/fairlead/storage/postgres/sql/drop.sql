-- Remove a record.
--
-- $1 text    kind
-- $2 text    name
-- $3 bigint  only if it has this version; null for any
--
-- Returns a row if one was removed.
DELETE FROM {schema}.record
WHERE kind = $1::text AND name = $2::text AND ($3::bigint IS NULL OR version = $3::bigint)
RETURNING 1
