-- The lanes of a queue that have ready tasks with keys. Parameters: queue.
SELECT lane FROM lane WHERE queue = ? AND keyed = 1 AND queued > 0
