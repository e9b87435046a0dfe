-- Take a task from the front of its lane. Parameters: lane, ready_at, id.
DELETE FROM front WHERE lane = ? AND ready_at = ? AND id = ?
