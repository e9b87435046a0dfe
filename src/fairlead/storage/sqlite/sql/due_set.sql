-- Say when the next start is due. Parameters: queue, name, due.
INSERT OR REPLACE INTO due (queue, name, due) VALUES (?, ?, ?)
