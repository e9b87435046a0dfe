-- Store a queued task of an id that is not taken, in a lane that is there, unless as many have arrived as may be unfiled.
-- Parameters: id, ready_at, packed spec, packed status, queue, type, requires, priority, how many may be unfiled.
INSERT OR IGNORE INTO task (number, id, lane, ready_at, spec, added)
VALUES (
    max((SELECT number FROM filed), coalesce((SELECT max(number) FROM task), 0)) + 1,
    ?1,
    -- There has to be one: without it nothing is inserted.
    (
        SELECT lane FROM lane
        WHERE queue = ?5 AND type = ?6 AND requires = ?7 AND priority = ?8 AND keyed = 0
            AND coalesce((SELECT max(number) FROM task), 0) < (SELECT number FROM filed) + ?9
            AND NOT EXISTS (SELECT 1 FROM task WHERE number > (SELECT number FROM filed) AND id = ?1)
            AND NOT EXISTS (SELECT 1 FROM directory WHERE id = ?1)
    ),
    ?2,
    ?3,
    ?4
)
