-- Count tasks that are queued in their lanes. Parameters: the number that theirs are above.
UPDATE lane SET queued = queued + (SELECT count(*) FROM task WHERE task.number > ?1 AND task.lane = lane.lane)
WHERE lane IN (SELECT lane FROM task WHERE number > ?1)
