-- Rewrite how a task stands. Parameters: lane, state, ready_at, alarm, packed status, number.
UPDATE status SET lane = ?, state = ?, ready_at = ?, alarm = ?, status = ? WHERE number = ?
