-- Every lane with its counts, in the order of State, and when the wait of its head began.
SELECT
    lane,
    queue,
    type,
    requires,
    priority,
    keyed,
    (SELECT min(ready_at) FROM ready WHERE ready.lane = lane.lane),
    scheduled, queued, executing, completed, failed, dead_letter, cancelled
FROM lane
