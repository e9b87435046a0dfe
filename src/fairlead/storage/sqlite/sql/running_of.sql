-- How many tasks of a key are executing. Parameters: queue, key.
SELECT tasks FROM running WHERE queue = ? AND key = ?
