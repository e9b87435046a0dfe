-- How many ready tasks of a lane are from one place on and before another.
--
-- KEYS[1]  the lane
-- ARGV[1]  ready_at and ARGV[2] id of the start
-- ARGV[3]  ready_at and ARGV[4] id of the end
--
-- Returns their number.

local before = count_before(KEYS[1], ARGV[1], ARGV[2], false)
return math.max(0, count_before(KEYS[1], ARGV[3], ARGV[4], false) - before)
