-- Entries of the feed. Parameters: the position they are beyond, how many at most.
SELECT position, value FROM feed WHERE position > ? ORDER BY position LIMIT ?
