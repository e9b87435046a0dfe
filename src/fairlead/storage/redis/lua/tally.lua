-- How one slot stands.
--
-- KEYS[1]  the slot's base
-- ARGV[1]  of how many lanes the heads are read at most: heads.lua reads the others
--
-- Returns {kind, descriptor, ...}, {count's field, count, ...}, {lane, ready_at of its head or '', ...}, {earliest alarms}.

local base, most = KEYS[1], 2 * ARGV[1]
local counts = redis.call('hgetall', base .. 'n')
local heads = {}
for at = 1, #counts, 2 do
  local field = counts[at]
  if string.sub(field, 10) == 'q' and #heads < most then
    local lane = string.sub(field, 1, 9)
    heads[#heads + 1] = lane
    heads[#heads + 1] = redis.call('zrange', base .. 'l' .. lane, 0, 0, 'withscores')[2] or ''
  end
end
local alarms = {}
for _, clock in ipairs({ 'a', 'e' }) do
  alarms[#alarms + 1] = redis.call('zrange', base .. clock, 0, 0, 'withscores')[2]
end
return { redis.call('hgetall', base .. 'd'), counts, heads, alarms }
