-- A new lane. Parameters: queue, type, requires, priority, keyed.
INSERT INTO lane (queue, type, requires, priority, keyed) VALUES (?, ?, ?, ?, ?)
