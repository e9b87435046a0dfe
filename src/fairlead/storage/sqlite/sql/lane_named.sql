-- What a lane is of. Parameters: lane.
SELECT queue, type, requires, priority, keyed FROM lane WHERE lane = ?
