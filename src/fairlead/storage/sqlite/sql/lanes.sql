-- name: lanes.number
-- The number of a lane. Parameters: queue, type, requires, priority, keyed.
SELECT lane FROM lane WHERE queue = ? AND type = ? AND requires = ? AND priority = ? AND keyed = ?

-- name: lanes.add
-- A new lane. Parameters: queue, type, requires, priority, keyed.
INSERT INTO lane (queue, type, requires, priority, keyed) VALUES (?, ?, ?, ?, ?)

-- name: lanes.named
-- What a lane is of. Parameters: lane.
SELECT queue, type, requires, priority, keyed FROM lane WHERE lane = ?

-- name: lanes.ready
-- The lanes of some queues that have ready tasks. Parameters: queues as a JSON array.
SELECT lane, queue, type, requires, priority, keyed FROM lane
WHERE queue IN (SELECT value FROM json_each(?)) AND queued > 0

-- name: lanes.count
-- Move a lane's counts. Parameters: one change per state, in the order of State; lane.
UPDATE lane
SET scheduled = scheduled + ?,
    queued = queued + ?,
    executing = executing + ?,
    completed = completed + ?,
    failed = failed + ?,
    dead_letter = dead_letter + ?,
    cancelled = cancelled + ?
WHERE lane = ?

-- name: lanes.forget
-- Forget a lane without tasks. Parameters: lane.
DELETE FROM lane
WHERE lane = ?
  AND scheduled + queued + executing + completed + failed + dead_letter + cancelled = 0
