-- name: turns.lines
-- How far the turns of a queue's lines have come, and how many fair tasks wait in each. Parameters: queue.
SELECT priority, reached, others, waiting FROM line_turn WHERE queue = ?

-- name: turns.queues
-- The queues in which fair tasks wait, by priority.
SELECT DISTINCT priority, queue FROM line_turn ORDER BY queue

-- name: turns.line
-- How far the turns of a line have come, and how many fair tasks wait in it. Parameters: queue, priority.
SELECT reached, others, waiting FROM line_turn WHERE queue = ? AND priority = ?

-- name: turns.line_set
-- Say so. Parameters: queue, priority, reached, others, waiting.
INSERT OR REPLACE INTO line_turn (queue, priority, reached, others, waiting) VALUES (?, ?, ?, ?, ?)

-- name: turns.line_forget
-- Forget a line in which no fair task waits. Parameters: queue, priority.
DELETE FROM line_turn WHERE queue = ? AND priority = ?

-- name: turns.key
-- What turn a key was given last, and how many of its tasks wait. Parameters: queue, priority, key.
SELECT last, waiting FROM line_key WHERE queue = ? AND priority = ? AND key = ?

-- name: turns.key_set
-- Say so. Parameters: queue, priority, key, last, waiting.
INSERT OR REPLACE INTO line_key (queue, priority, key, last, waiting) VALUES (?, ?, ?, ?, ?)

-- name: turns.key_forget
-- Forget a key of which no task waits. Parameters: queue, priority, key.
DELETE FROM line_key WHERE queue = ? AND priority = ? AND key = ?

-- name: turns.keys_forget
-- Forget the keys of a line. Parameters: queue, priority.
DELETE FROM line_key WHERE queue = ? AND priority = ?

-- name: turns.keys_count
-- How many keys a line has. Parameters: queue, priority.
SELECT count(*) FROM line_key WHERE queue = ? AND priority = ?

-- name: turns.keys_named
-- How many tasks of some keys wait. Parameters: queue, priority, keys as a JSON array.
SELECT line_key.key, line_key.waiting FROM json_each(?3) AS asked
CROSS JOIN line_key ON line_key.queue = ?1 AND line_key.priority = ?2 AND line_key.key = asked.value

-- name: turns.keys_most
-- The keys of a line that have most tasks. Parameters: queue, priority, how many.
SELECT key, waiting FROM line_key WHERE queue = ? AND priority = ? ORDER BY waiting DESC, key LIMIT ?

-- name: turns.keys_some
-- Some keys of a line. Parameters: queue, priority, how many.
SELECT key, waiting FROM line_key WHERE queue = ? AND priority = ? LIMIT ?

-- name: turns.lanes
-- The lanes of fair tasks of a queue. Parameters: queue.
SELECT head_ready_at, head_id, lane, queue, type, requires, priority, keyed, queued
FROM lane INDEXED BY lane_fair
WHERE queue = ? AND instr(requires, 'fair turns') > 0

-- name: turns.add
-- Give tasks their turns. Rows: lane, turn, id, number, ready_at, fair key.
INSERT OR REPLACE INTO turn (lane, turn, id, number, ready_at, key) VALUES {rows}

-- name: turns.of
-- The number and the fair key of the task that has a turn. Parameters: lane, turn, id.
SELECT number, key FROM turn WHERE lane = ? AND turn = ? AND id = ?

-- name: turns.remove
-- A task waits no more. Parameters: lane, turn, id.
DELETE FROM turn WHERE lane = ? AND turn = ? AND id = ?

-- name: turns.find
-- The turn of a task of which nobody knows how it stands. Parameters: lane, id.
SELECT turn FROM turn WHERE lane = ? AND id = ?

-- name: turns.places
-- The first tasks of a lane by turn, of those that are ready. Parameters: lane, the place to start after, how many.
SELECT turn.turn, turn.id, turn.number, turn.lane FROM turn
CROSS JOIN ready ON ready.lane = turn.lane AND ready.ready_at = turn.ready_at AND ready.id = turn.id
WHERE turn.lane = ? AND (turn.turn, turn.id) > (?, ?)
ORDER BY turn.turn, turn.id
LIMIT ?

-- name: turns.stretch
-- How many ready tasks of a lane are from one place by turn on and before another.
-- Parameters: queue, type, requires, priority, keyed, turn and id of the start, turn and id of the end, and how many are
-- counted at most; -1 for all.
SELECT (
    SELECT count(*) FROM (
        SELECT 1 FROM turn
        WHERE turn.lane = lane.lane AND (turn, id) >= (?6, ?7) AND (turn, id) < (?8, ?9)
        LIMIT ?10
    )
)
FROM lane
WHERE queue = ?1 AND type = ?2 AND requires = ?3 AND priority = ?4 AND keyed = ?5

-- name: turns.mend_gone
-- Forget the turns of tasks that are no longer ready in a lane. Parameters: lane.
DELETE FROM turn WHERE lane = ? AND NOT EXISTS (
    SELECT 1 FROM ready WHERE ready.lane = turn.lane AND ready.ready_at = turn.ready_at AND ready.id = turn.id
)

-- name: turns.mend_come
-- The ready tasks of a lane that have no turn, oldest first. Parameters: lane.
SELECT ready.ready_at, ready.id, ready.number, CAST(coalesce(status.status, task.added) AS BLOB), CAST(task.spec AS BLOB)
FROM ready
CROSS JOIN task ON task.number = ready.number
LEFT JOIN status ON status.number = ready.number
WHERE ready.lane = ?1 AND ready.id NOT IN (SELECT id FROM turn WHERE lane = ?1)
ORDER BY ready.ready_at, ready.id

-- name: turns.mend_keys
-- Count the waiting tasks of each key of a queue anew. Parameters: queue.
INSERT INTO line_key (queue, priority, key, last, waiting)
SELECT ?1, lane.priority, turn.key, max(turn.turn), count(*)
FROM lane INDEXED BY lane_fair
CROSS JOIN turn ON turn.lane = lane.lane
WHERE lane.queue = ?1 AND instr(lane.requires, 'fair turns') > 0
GROUP BY lane.priority, turn.key

-- name: turns.mend_lines
-- Count the waiting tasks of the lines of a queue anew. Parameters: queue.
INSERT OR REPLACE INTO line_turn (queue, priority, reached, others, waiting)
SELECT ?1, counted.priority, coalesce(line_turn.reached, 0), coalesce(line_turn.others, 0), counted.waiting
FROM (SELECT priority, sum(waiting) AS waiting FROM line_key WHERE queue = ?1 GROUP BY priority) AS counted
LEFT JOIN line_turn ON line_turn.queue = ?1 AND line_turn.priority = counted.priority

-- name: turns.mend_empty
-- Forget the lines of a queue in which no fair task waits. Parameters: queue.
DELETE FROM line_turn WHERE queue = ?1 AND priority NOT IN (SELECT priority FROM line_key WHERE queue = ?1)

-- name: turns.mend_begin
-- Forget how many tasks of each key of a queue wait. Parameters: queue.
DELETE FROM line_key WHERE queue = ?

-- name: turns.mend_bound
-- Say that nobody has queued anything without a turn in the fair lanes of a queue. Parameters: queue.
UPDATE lane SET head_ready_at = NULL, head_id = '' WHERE queue = ? AND instr(requires, 'fair turns') > 0

-- name: turns.strays
-- The queues in which a process of an earlier version has queued fair tasks.
SELECT DISTINCT queue FROM lane WHERE instr(requires, 'fair turns') > 0 AND head_ready_at IS NOT NULL

-- name: turns.take
-- Take what is in front of a lane by turn, up to and with one task. Parameters: lane, and the task's turn and id.
DELETE FROM turn WHERE lane = ? AND (turn, id) <= (?, ?)
