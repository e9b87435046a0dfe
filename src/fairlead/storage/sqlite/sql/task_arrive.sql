-- Store a queued task of an id that is not taken, in a lane that is there, unless as many have arrived as may be unfiled.
-- Parameters: id, ready_at, packed spec, packed status, queue, type, requires, priority, how many may be unfiled.
INSERT OR IGNORE INTO task (number, id, lane, ready_at, spec, added)
VALUES (
    (SELECT max(number, coalesce((SELECT max(number) FROM task), 0)) + 1 FROM filed),
    ?1,
    -- There has to be one: without it nothing is inserted.
    (
        SELECT lane.lane FROM lane CROSS JOIN filed
        WHERE lane.queue = ?5 AND lane.type = ?6 AND lane.requires = ?7 AND lane.priority = ?8 AND lane.keyed = 0
            AND coalesce((SELECT max(number) FROM task), 0) < filed.number + ?9
            AND NOT EXISTS (SELECT 1 FROM task WHERE task.number > filed.number AND task.id = ?1)
            AND NOT EXISTS (SELECT 1 FROM directory WHERE directory.id = ?1)
    ),
    ?2,
    ?3,
    ?4
)
