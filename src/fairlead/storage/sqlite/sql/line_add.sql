-- A task of a key is queued. Parameters: lane, key, ready_at, id, number.
INSERT INTO line (lane, key, ready_at, id, number) VALUES (?, ?, ?, ?, ?)
