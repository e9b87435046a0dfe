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
