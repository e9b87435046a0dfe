-- Take a key that is free. Parameters: queue, key, id, until.
INSERT OR REPLACE INTO key (queue, key, id, until) VALUES (?, ?, ?, ?)
