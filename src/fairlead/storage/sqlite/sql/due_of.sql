-- When the next start is due. Parameters: queue, name.
SELECT due FROM due WHERE queue = ? AND name = ?
