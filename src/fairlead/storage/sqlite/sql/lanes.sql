-- name: lanes.number
-- The number of a lane, and the bound of its head. Parameters: queue, type, requires, priority, keyed.
SELECT lane, head_ready_at, head_id FROM lane WHERE queue = ? AND type = ? AND requires = ? AND priority = ? AND keyed = ?

-- name: lanes.add
-- A new lane. Parameters: queue, type, requires, priority, keyed.
INSERT INTO lane (queue, type, requires, priority, keyed) VALUES (?, ?, ?, ?, ?)

-- name: lanes.named
-- What a lane is of. Parameters: lane.
SELECT queue, type, requires, priority, keyed FROM lane WHERE lane = ?

-- name: lanes.few
-- The first lanes of a queue that may have ready tasks. Parameters: queue, how many.
SELECT head_ready_at, head_id, lane, queue, type, requires, priority, keyed, queued
FROM lane INDEXED BY lane_heads
WHERE queue = ? AND head_ready_at IS NOT NULL
LIMIT ?

-- name: lanes.few_everywhere
-- The first lanes of all queues that may have ready tasks. Parameters: how many.
SELECT head_ready_at, head_id, lane, queue, type, requires, priority, keyed, queued
FROM lane INDEXED BY lane_heads_everywhere
WHERE head_ready_at IS NOT NULL
LIMIT ?

-- name: lanes.kind_next
-- Who passes over the next of a queue's lanes, with their priority and capability set.
-- Parameters: queue, the ones before, and a moment that no task waits since.
SELECT shut, priority, requires
FROM lane INDEXED BY lane_heads
WHERE queue = ? AND head_ready_at IS NOT NULL AND (shut, priority, requires, head_ready_at) > (?, ?, ?, ?)
ORDER BY shut, priority, requires
LIMIT 1

-- name: lanes.kind_next_everywhere
-- Who passes over the next of all lanes, with their priority and capability set.
-- Parameters: the ones before, and a moment that no task waits since.
SELECT shut, priority, requires
FROM lane INDEXED BY lane_heads_everywhere
WHERE head_ready_at IS NOT NULL AND (shut, priority, requires, head_ready_at) > (?, ?, ?, ?)
ORDER BY shut, priority, requires
LIMIT 1

-- name: lanes.walk
-- Lanes of a queue and kind by the bounds of their heads.
-- Parameters: queue, shut, priority, requires, the bound and the number to start after, how many.
SELECT head_ready_at, head_id, lane, queue, type, requires, priority, keyed, queued
FROM lane INDEXED BY lane_heads
WHERE queue = ? AND shut = ? AND priority = ? AND requires = ?
    AND head_ready_at IS NOT NULL AND (head_ready_at, head_id, lane) > (?, ?, ?)
ORDER BY head_ready_at, head_id, lane
LIMIT ?

-- name: lanes.walk_queues
-- Queues by the bounds of their lanes of a kind.
-- Parameters: shut, priority, requires, the bound and the queue to start after, how many.
SELECT head_ready_at, head_id, queue
FROM lane INDEXED BY lane_heads_everywhere
WHERE shut = ? AND priority = ? AND requires = ?
    AND head_ready_at IS NOT NULL AND (head_ready_at, head_id, queue) > (?, ?, ?)
ORDER BY head_ready_at, head_id, queue
LIMIT ?

-- name: lanes.of_types
-- Lanes of a queue that are of some types and may have ready tasks. Parameters: queue, types as a JSON array.
SELECT lane.head_ready_at, lane.head_id, lane.lane, lane.queue, lane.type, lane.requires, lane.priority, lane.keyed,
    lane.queued
FROM json_each(?2) AS asked
CROSS JOIN lane ON lane.queue = ?1 AND lane.type = asked.value
WHERE lane.head_ready_at IS NOT NULL

-- name: lanes.shut_set
-- Say who passes over a lane. Parameters: who, lane.
UPDATE lane SET shut = ? WHERE lane = ?

-- name: lanes.shut_reset
-- Forget who passes over lanes.
UPDATE lane SET shut = '' WHERE shut <> ''

-- name: lanes.head_set
-- Say what the head of a lane is. Parameters: ready_at and id, lane.
UPDATE lane SET head_ready_at = ?, head_id = ? WHERE lane = ?

-- name: lanes.head_lower
-- A task has come into a lane, maybe before its head. Parameters: lane, ready_at, id.
UPDATE lane SET head_ready_at = ?2, head_id = ?3
WHERE lane = ?1 AND (head_ready_at IS NULL OR (head_ready_at, head_id) > (?2, ?3))

-- name: lanes.count
-- Move a lane's counts. Parameters: one change per state, in the order of State; lane.
UPDATE lane
SET scheduled = scheduled + ?,
    queued = queued + ?,
    executing = executing + ?,
    completed = completed + ?,
    failed = failed + ?,
    dead_letter = dead_letter + ?,
    cancelled = cancelled + ?,
    writes = writes + 1
WHERE lane = ?

-- name: lanes.count_rest
-- Move a lane's counts, but for that of ready tasks. Parameters: one change per other state, in their order; lane.
UPDATE lane
SET scheduled = scheduled + ?,
    executing = executing + ?,
    completed = completed + ?,
    failed = failed + ?,
    dead_letter = dead_letter + ?,
    cancelled = cancelled + ?
WHERE lane = ?

-- name: lanes.count_with_head
-- Move a lane's counts, and say what its head is.
-- Parameters: one change per state, in the order of State; ready_at and id of the head; lane.
UPDATE lane
SET scheduled = scheduled + ?,
    queued = queued + ?,
    executing = executing + ?,
    completed = completed + ?,
    failed = failed + ?,
    dead_letter = dead_letter + ?,
    cancelled = cancelled + ?,
    writes = writes + 1,
    head_ready_at = ?,
    head_id = ?
WHERE lane = ?

-- name: lanes.forget
-- Forget a lane without tasks. Parameters: lane.
DELETE FROM lane
WHERE lane = ?
  AND scheduled + queued + executing + completed + failed + dead_letter + cancelled = 0
