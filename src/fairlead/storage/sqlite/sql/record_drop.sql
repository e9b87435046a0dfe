-- Remove a record of an expected version, or of any. Parameters: kind, name, expected.
DELETE FROM record WHERE kind = ?1 AND name = ?2 AND (?3 IS NULL OR version = ?3)
