-- Let the first task of a key come to the front of a lane. Parameters: lane, key.
INSERT OR IGNORE INTO front (lane, ready_at, id, number, key)
SELECT lane, ready_at, id, number, key FROM line WHERE lane = ? AND key = ? ORDER BY ready_at, id LIMIT 1
