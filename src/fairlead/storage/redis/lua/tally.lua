-- How one slot stands.
--
-- KEYS[1]  the slot's base
--
-- Returns {kind, descriptor, ...}, {count's field, count, ...}, {lane, ready_at of its head, ...}, {earliest alarms}.

local base = KEYS[1]
local counts = redis.call('hgetall', base .. 'n')
local heads = {}
for at = 1, #counts, 2 do
  local field = counts[at]
  if string.sub(field, 10) == 'q' then
    local lane = string.sub(field, 1, 9)
    local head = redis.call('zrange', base .. 'l' .. lane, 0, 0, 'withscores')
    if head[2] then
      heads[#heads + 1] = lane
      heads[#heads + 1] = head[2]
    end
  end
end
local alarms = {}
for _, clock in ipairs({ 'a', 'e' }) do
  alarms[#alarms + 1] = redis.call('zrange', base .. clock, 0, 0, 'withscores')[2]
end
return { redis.call('hgetall', base .. 'd'), counts, heads, alarms }
