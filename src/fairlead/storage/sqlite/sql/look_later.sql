-- Have a key that is full looked at later. Parameters: queue, key, at, under.
INSERT OR REPLACE INTO look (queue, key, at, under) VALUES (?, ?, ?, ?)
