-- How many ready tasks of a lane are from one place on and before another.
-- Parameters: queue, type, requires, priority, ready_at and id of the start, ready_at and id of the end.
SELECT count(*) FROM ready
WHERE lane = (SELECT lane FROM lane WHERE queue = ? AND type = ? AND requires = ? AND priority = ?)
    AND (ready_at, id) >= (?, ?) AND (ready_at, id) < (?, ?)
