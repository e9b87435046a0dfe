-- One task of a key less is executing. Parameters: queue, key.
UPDATE running SET tasks = tasks - 1 WHERE queue = ? AND key = ?
