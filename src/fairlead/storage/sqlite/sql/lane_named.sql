-- What a lane is of. Parameters: lane.
SELECT queue, type, requires, priority FROM lane WHERE lane = ?
