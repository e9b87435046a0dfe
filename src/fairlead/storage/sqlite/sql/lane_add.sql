-- A new lane. Parameters: queue, type, requires, priority.
INSERT INTO lane (queue, type, requires, priority) VALUES (?, ?, ?, ?)
