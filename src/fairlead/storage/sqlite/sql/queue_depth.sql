-- How many tasks wait in a queue. Parameters: queue.
SELECT coalesce(sum(scheduled + queued), 0) FROM lane WHERE queue = ?
