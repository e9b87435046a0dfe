-- The keys of a queue that are to be looked at by now, or were full by another limit.
-- Parameters: queue, now, the limit as it is, how many at most of each kind.
SELECT key FROM (SELECT key FROM look INDEXED BY look_at WHERE queue = ?1 AND at <= ?2 ORDER BY at, key LIMIT ?4)
UNION
SELECT key FROM (SELECT key FROM look INDEXED BY look_under WHERE queue = ?1 AND under IS NOT NULL AND under < ?3 LIMIT ?4)
UNION
SELECT key FROM (SELECT key FROM look INDEXED BY look_under WHERE queue = ?1 AND under IS NOT NULL AND under > ?3 LIMIT ?4)
