-- name: records.all
-- All records of a kind. Parameters: kind.
SELECT name, CAST(value AS BLOB), CAST(version AS INTEGER) FROM record WHERE kind = ? ORDER BY name

-- name: records.version
-- The version of a record. Parameters: kind, name.
SELECT CAST(version AS INTEGER) FROM record WHERE kind = ? AND name = ?

-- name: records.put
-- Store a record. Parameters: kind, name, value, version.
INSERT OR REPLACE INTO record (kind, name, value, version) VALUES (?, ?, ?, ?)

-- name: records.drop
-- Remove a record of an expected version, or of any. Parameters: kind, name, expected.
DELETE FROM record WHERE kind = ?1 AND name = ?2 AND (?3 IS NULL OR CAST(version AS INTEGER) = ?3)
