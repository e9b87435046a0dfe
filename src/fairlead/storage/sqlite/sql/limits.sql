-- name: limits.line_add
-- A task of a key is queued. Parameters: lane, key, ready_at, id, number.
INSERT INTO line (lane, key, ready_at, id, number) VALUES (?, ?, ?, ?, ?)

-- name: limits.line_place
-- Where a task is in the line of its key. Parameters: lane, key, id.
SELECT ready_at FROM line WHERE lane = ? AND key = ? AND id = ?

-- name: limits.line_remove
-- A task of a key is no longer queued. Parameters: lane, key, ready_at, id.
DELETE FROM line WHERE lane = ? AND key = ? AND ready_at = ? AND id = ?

-- name: limits.front_add
-- Let the first task of a key come to the front of a lane. Parameters: lane, key.
INSERT OR IGNORE INTO front (lane, ready_at, id, number, key)
SELECT lane, ready_at, id, number, key FROM line WHERE lane = ? AND key = ? ORDER BY ready_at, id LIMIT 1

-- name: limits.front_head
-- The best task at the front of a lane, with its key. Parameters: lane.
SELECT ready_at, id, number, lane, key FROM front
WHERE lane = ?
ORDER BY ready_at, id
LIMIT 1

-- name: limits.front_remove
-- Take a task from the front of its lane. Parameters: lane, ready_at, id.
DELETE FROM front WHERE lane = ? AND ready_at = ? AND id = ?

-- name: limits.look_due
-- The keys of a queue that are to be looked at by now, or were full by another limit.
-- Parameters: queue, now, the limit as it is, how many at most of each kind, and two moments: what is put off to one
-- between them was so by a clock that has gone back since.
SELECT key FROM (SELECT key FROM look INDEXED BY look_at WHERE queue = ?1 AND at <= ?2 ORDER BY at, key LIMIT ?4)
UNION
SELECT key FROM (SELECT key FROM look INDEXED BY look_under WHERE queue = ?1 AND under IS NOT NULL AND under < ?3 LIMIT ?4)
UNION
SELECT key FROM (SELECT key FROM look INDEXED BY look_under WHERE queue = ?1 AND under IS NOT NULL AND under > ?3 LIMIT ?4)
UNION
SELECT key FROM (SELECT key FROM look INDEXED BY look_at WHERE queue = ?1 AND at > ?5 AND at < ?6 ORDER BY at, key LIMIT ?4)

-- name: limits.look_done
-- A key was looked at. Parameters: queue, key.
DELETE FROM look WHERE queue = ? AND key = ?

-- name: limits.look_wake
-- Have a key looked at, unless it is to be already. Parameters: queue, key.
INSERT OR IGNORE INTO look (queue, key, at) VALUES (?, ?, 0)

-- name: limits.look_free
-- Have a key looked at now that is to be looked at later. Parameters: queue, key.
UPDATE look SET at = 0, under = NULL WHERE queue = ? AND key = ?

-- name: limits.look_later
-- Have a key that is full looked at later. Parameters: queue, key, at, under.
INSERT OR REPLACE INTO look (queue, key, at, under) VALUES (?, ?, ?, ?)

-- name: limits.look_forget
-- A key of which no task is queued need not be looked at. Parameters: queue, key.
DELETE FROM look
WHERE queue = ?1 AND key = ?2 AND NOT EXISTS (
    SELECT 1 FROM lane INDEXED BY lane_keyed
    CROSS JOIN line ON line.lane = lane.lane AND line.key = ?2
    WHERE lane.queue = ?1 AND lane.keyed > 0
)

-- name: limits.lanes_keyed
-- The lanes of a queue that have ready tasks with keys. Parameters: queue.
SELECT lane FROM lane INDEXED BY lane_keyed WHERE queue = ? AND keyed > 0 AND queued > 0

-- name: limits.looking
-- Whether any key is to be looked at, and whether any fair task waits.
SELECT EXISTS (SELECT 1 FROM look), EXISTS (SELECT 1 FROM line_turn)

-- name: limits.looking_next
-- The next queue that has keys to be looked at. Parameters: the one before.
SELECT min(queue) FROM look WHERE queue > ?

-- name: limits.running_of_type
-- How many tasks of a type are executing in a queue. Parameters: queue, type.
SELECT coalesce(sum(executing), 0) FROM lane WHERE queue = ? AND type = ?

-- name: limits.total_of
-- How many tasks wait and how many are executing in a queue, if that is kept. Parameters: queue.
SELECT waiting, executing FROM total WHERE queue = ?

-- name: limits.total_count
-- The same, counted from the lanes. Parameters: queue.
SELECT coalesce(sum(scheduled + queued), 0), coalesce(sum(executing), 0) FROM lane WHERE queue = ?

-- name: limits.total_keep
-- From now on keep how many tasks wait and are executing in a queue. Parameters: queue, how many.
INSERT INTO total (queue, waiting, executing) VALUES (?, ?, ?)

-- name: limits.totals
-- Whether they are kept of any queue.
SELECT EXISTS (SELECT 1 FROM total)

-- name: limits.total_move
-- More tasks wait and are executing in the queue of a lane. Parameters: how many, lane.
UPDATE total SET waiting = waiting + ?, executing = executing + ?
WHERE queue = (SELECT queue FROM lane WHERE lane = ?)

-- name: limits.running_of
-- How many tasks of a key are executing. Parameters: queue, key.
SELECT tasks FROM running WHERE queue = ? AND key = ?

-- name: limits.running_more
-- One more task of a key is executing. Parameters: queue, key.
INSERT INTO running (queue, key, tasks) VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET tasks = tasks + 1

-- name: limits.running_less
-- One task of a key less is executing. Parameters: queue, key.
UPDATE running SET tasks = tasks - 1 WHERE queue = ? AND key = ?

-- name: limits.running_none
-- Forget a key of which no task is executing. Parameters: queue, key.
DELETE FROM running WHERE queue = ? AND key = ? AND tasks = 0

-- name: limits.due_of
-- When the next start is due. Parameters: queue, name.
SELECT due FROM due WHERE queue = ? AND name = ?

-- name: limits.due_set
-- Say when the next start is due. Parameters: queue, name, due.
INSERT OR REPLACE INTO due (queue, name, due) VALUES (?, ?, ?)

-- name: limits.due_forget
-- Forget what is past: it is as if there had been no start. Parameters: now.
DELETE FROM due WHERE due <= ?
