-- Free a key if this task holds it. Parameters: queue, key, id.
DELETE FROM key WHERE queue = ? AND key = ? AND id = ?
