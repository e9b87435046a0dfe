-- The version of a record. Parameters: kind, name.
SELECT version FROM record WHERE kind = ? AND name = ?
