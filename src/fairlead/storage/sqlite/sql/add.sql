-- name: add.ids_known
-- Which ids are taken. Parameters: ids as a JSON array.
SELECT directory.id FROM json_each(?) AS asked CROSS JOIN directory ON directory.id = asked.value

-- name: add.last_id
-- The highest id in the directory.
SELECT max(id) FROM directory

-- name: add.tasks
-- Store tasks as they are when they are added.
-- Rows: number, id, lane, ready_at if queued, concurrency key, packed spec, packed status.
INSERT INTO task (number, id, lane, ready_at, concurrency_key, spec, added) VALUES {rows}

-- name: add.key_take
-- Take a key that is free. Parameters: queue, key, id, until.
INSERT OR REPLACE INTO key (queue, key, id, until) VALUES (?, ?, ?, ?)

-- name: add.dependents
-- Take note of who waits for whom. Rows: the task that is waited for, the task that waits.
INSERT INTO dependent (parent, id) VALUES {rows}
