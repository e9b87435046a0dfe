-- name: records.replace
-- Replace a record if it has the version that was read.
--
-- $1 text    kind
-- $2 text    name
-- $3 bytea   value
-- $4 bigint  version
--
-- Returns its new version; nothing if it has another or is not there.
UPDATE {schema}.record SET value = $3::bytea, version = version + 1
WHERE kind = $1::text AND name = $2::text AND version = $4::bigint
RETURNING version

-- name: records.put
-- Store a record.
--
-- $1 text     kind
-- $2 text     name
-- $3 bytea    value
-- $4 boolean  whether a record that is there is replaced
--
-- Returns its new version; nothing if there was one that was to stay.
INSERT INTO {schema}.record AS r (kind, name, value, version) VALUES ($1::text, $2::text, $3::bytea, 1)
ON CONFLICT (kind, name) DO UPDATE SET value = excluded.value, version = r.version + 1 WHERE $4::boolean
RETURNING version

-- name: records.drop
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

-- name: records.all
-- All records of a kind, by name.
--
-- $1 text  kind
--
-- Returns name, value, version.
SELECT name, value, version FROM {schema}.record WHERE kind = $1::text ORDER BY name
