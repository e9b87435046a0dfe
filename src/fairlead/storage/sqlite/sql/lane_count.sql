-- Move a lane's counts. Parameters: one change per state, in the order of State; lane.
UPDATE lane
SET scheduled = scheduled + ?,
    queued = queued + ?,
    executing = executing + ?,
    completed = completed + ?,
    failed = failed + ?,
    dead_letter = dead_letter + ?,
    cancelled = cancelled + ?
WHERE lane = ?
