-- The number of a lane. Parameters: queue, type, requires, priority.
SELECT lane FROM lane WHERE queue = ? AND type = ? AND requires = ? AND priority = ?
