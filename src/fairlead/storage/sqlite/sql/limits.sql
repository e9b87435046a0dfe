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
SELECT front.ready_at, front.id, front.number, front.lane,
    CAST(coalesce(status.status, task.added) AS BLOB), CAST(task.spec AS BLOB), front.key
FROM front
CROSS JOIN task ON task.number = front.number
LEFT JOIN status ON status.number = front.number
WHERE front.lane = ?
ORDER BY front.ready_at, front.id
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
    SELECT 1 FROM lane CROSS JOIN line ON line.lane = lane.lane AND line.key = ?2 WHERE lane.queue = ?1 AND lane.keyed = 1
)

-- name: limits.lanes_keyed
-- The lanes of a queue that have ready tasks with keys. Parameters: queue.
SELECT lane FROM lane WHERE queue = ? AND keyed = 1 AND queued > 0

-- name: limits.lanes_running
-- How many tasks of each type are executing in some queues. Parameters: queues as a JSON array.
SELECT queue, type, sum(executing) FROM lane
WHERE queue IN (SELECT value FROM json_each(?)) AND executing > 0
GROUP BY queue, type

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
