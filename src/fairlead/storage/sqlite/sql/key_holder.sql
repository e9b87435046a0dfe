-- The task that holds a key. Parameters: queue, key, now.
SELECT id FROM key WHERE queue = ? AND key = ? AND until > ?
