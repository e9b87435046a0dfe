-- Count new tasks in their lane, which is made if need be; its number. Parameters: queue, type, requires, priority, keyed,
-- then one count per state, in the order of State.
INSERT INTO lane (
    queue, type, requires, priority, keyed,
    scheduled, queued, executing, completed, failed, dead_letter, cancelled
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (queue, type, requires, priority, keyed) DO UPDATE
SET scheduled = scheduled + excluded.scheduled,
    queued = queued + excluded.queued,
    executing = executing + excluded.executing,
    completed = completed + excluded.completed,
    failed = failed + excluded.failed,
    dead_letter = dead_letter + excluded.dead_letter,
    cancelled = cancelled + excluded.cancelled
RETURNING lane
