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
