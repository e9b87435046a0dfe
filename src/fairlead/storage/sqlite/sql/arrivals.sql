-- name: arrivals.add
-- Store a queued task of an id that is not taken, in a lane that is there,
-- unless as many have arrived as may be unfiled. Its number is the next by itself, as no lower one than that up to which
-- tasks are filed is the last.
-- Parameters: id, ready_at, packed spec, packed status, queue, type, requires, priority, how many may be unfiled.
INSERT OR IGNORE INTO task (id, lane, ready_at, spec, added)
VALUES (
    ?1,
    -- There has to be one: without it nothing is inserted.
    (
        SELECT lane.lane FROM lane CROSS JOIN filed
        WHERE lane.queue = ?5 AND lane.type = ?6 AND lane.requires = ?7 AND lane.priority = ?8 AND lane.keyed = 0
            AND (SELECT max(number) FROM task) BETWEEN filed.number AND filed.number + ?9 - 1
            AND NOT EXISTS (SELECT 1 FROM task WHERE task.number > filed.number AND task.id = ?1)
            AND NOT EXISTS (SELECT 1 FROM directory WHERE directory.id = ?1)
    ),
    ?2,
    ?3,
    ?4
)

-- name: arrivals.by_id
-- Tasks that are not filed. Parameters: ids as a JSON array.
SELECT id, CAST(added AS BLOB), CAST(spec AS BLOB) FROM task
WHERE number > (SELECT number FROM filed) AND id IN (SELECT value FROM json_each(?) AS asked)

-- name: arrivals.tally
-- How many tasks of each lane are not filed, and when the wait of the first of them began.
SELECT lane, count(*), min(ready_at) FROM task WHERE number > (SELECT number FROM filed) GROUP BY lane

-- name: arrivals.filed
-- The number up to which tasks are filed, and the highest one in use.
SELECT (SELECT number FROM filed), (SELECT max(number) FROM task)

-- name: arrivals.lanes
-- How many tasks of each lane are to be filed, where they may be in it, and the bound of its head.
-- Parameters: the number that theirs are above.
SELECT arrived.tasks, arrived.lane, arrived.ready_at, arrived.id, lane.head_ready_at, lane.head_id
FROM (
    SELECT lane, count(*) AS tasks, min(ready_at) AS ready_at, min(id) AS id FROM task WHERE number > ? GROUP BY lane
) AS arrived
CROSS JOIN lane ON lane.lane = arrived.lane

-- name: arrivals.lane_fill
-- Count tasks that are queued in their lane. Parameters: how many, lane.
UPDATE lane SET queued = queued + ?, writes = writes + 1 WHERE lane = ?

-- name: arrivals.directory_fill
-- Enter tasks in the directory. Parameters: the number that theirs are above.
INSERT INTO directory (id, number) SELECT id, number FROM task WHERE number > ?

-- name: arrivals.ready_fill
-- Put tasks into their lanes. Parameters: the number that theirs are above.
INSERT INTO ready (lane, ready_at, id, number)
SELECT lane, ready_at, id, number FROM task WHERE number > ? AND ready_at IS NOT NULL

-- name: arrivals.filed_set
-- Say up to which number tasks are filed. Parameters: number.
UPDATE filed SET number = ?
