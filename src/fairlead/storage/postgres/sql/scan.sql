-- All records of a kind, by name.
--
-- $1 text  kind
--
-- Returns name, value, version.
SELECT name, value, version FROM {schema}.record WHERE kind = $1::text ORDER BY name
