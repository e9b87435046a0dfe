-- Store how a new task stands. Parameters: number, id, lane, state, ready_at, alarm, packed status.
INSERT INTO status (number, id, lane, state, ready_at, alarm, status) VALUES (?, ?, ?, ?, ?, ?, ?)
