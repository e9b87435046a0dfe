-- One more task of a key is executing. Parameters: queue, key.
INSERT INTO running (queue, key, tasks) VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET tasks = tasks + 1
