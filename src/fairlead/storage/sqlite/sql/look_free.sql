-- Have a key looked at now that is to be looked at later. Parameters: queue, key.
UPDATE look SET at = 0, under = NULL WHERE queue = ? AND key = ?
