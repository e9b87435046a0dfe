-- Have a key looked at, unless it is to be already. Parameters: queue, key.
INSERT OR IGNORE INTO look (queue, key, at) VALUES (?, ?, 0)
