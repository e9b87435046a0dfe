-- The number of a lane. Parameters: queue, type, requires, priority, keyed.
SELECT lane FROM lane WHERE queue = ? AND type = ? AND requires = ? AND priority = ? AND keyed = ?
