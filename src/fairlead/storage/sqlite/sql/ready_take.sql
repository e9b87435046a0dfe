-- Take the front off a lane, up to and with one task. Parameters: lane, and the task's ready_at and id.
DELETE FROM ready WHERE lane = ? AND (ready_at, id) <= (?, ?)
