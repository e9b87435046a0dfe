-- A key of which no task is queued need not be looked at. Parameters: queue, key.
DELETE FROM look
WHERE queue = ?1 AND key = ?2 AND NOT EXISTS (
    SELECT 1 FROM lane CROSS JOIN line ON line.lane = lane.lane AND line.key = ?2 WHERE lane.queue = ?1 AND lane.keyed = 1
)
