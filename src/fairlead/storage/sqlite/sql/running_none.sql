-- Forget a key of which no task is executing. Parameters: queue, key.
DELETE FROM running WHERE queue = ? AND key = ? AND tasks = 0
