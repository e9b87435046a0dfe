-- All records of a kind. Parameters: kind.
SELECT name, value, version FROM record WHERE kind = ? ORDER BY name
