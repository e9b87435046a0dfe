-- A key was looked at. Parameters: queue, key.
DELETE FROM look WHERE queue = ? AND key = ?
