-- Forget a lane without tasks. Parameters: lane.
DELETE FROM lane
WHERE lane = ?
  AND scheduled + queued + executing + completed + failed + dead_letter + cancelled = 0
