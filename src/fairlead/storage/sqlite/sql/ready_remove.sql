-- Take a task out of its lane. Parameters: lane, ready_at, id.
DELETE FROM ready WHERE lane = ? AND ready_at = ? AND id = ?
