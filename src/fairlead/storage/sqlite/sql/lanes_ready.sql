-- The lanes of some queues that have ready tasks. Parameters: queues as a JSON array.
SELECT lane, queue, type, requires, priority, keyed FROM lane
WHERE queue IN (SELECT value FROM json_each(?)) AND queued > 0
