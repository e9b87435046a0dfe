-- The highest id in the directory.
SELECT max(id) FROM directory
