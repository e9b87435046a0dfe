-- How many ready tasks of a lane are from one place on and before another.
-- Parameters: queue, type, requires, priority, keyed, ready_at and id of the start, ready_at and id of the end.
SELECT (
    SELECT count(*) FROM ready
    WHERE ready.lane = lane.lane AND (ready_at, id) >= (?6, ?7) AND (ready_at, id) < (?8, ?9)
) + (
    SELECT count(*) FROM task
    WHERE number > (SELECT number FROM filed)
        AND task.lane = lane.lane AND (ready_at, id) >= (?6, ?7) AND (ready_at, id) < (?8, ?9)
)
FROM lane
WHERE queue = ?1 AND type = ?2 AND requires = ?3 AND priority = ?4 AND keyed = ?5
