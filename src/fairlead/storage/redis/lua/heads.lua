-- When the waits of the heads of lanes began, in one slot.
--
-- KEYS[1]  the slot's base
-- ARGV     lanes
--
-- Returns {lane, ready_at or '', ...}.

local heads = {}
for at, lane in ipairs(ARGV) do
  heads[2 * at - 1] = lane
  heads[2 * at] = redis.call('zrange', KEYS[1] .. 'l' .. lane, 0, 0, 'withscores')[2] or ''
end
return heads
