-- The members of one sorted set of alarms up to a moment, earliest first, ids breaking ties.
--
-- KEYS[1]  the sorted set
-- ARGV[1]  now      ARGV[2]  how many at most
-- ARGV[3]  alarm and ARGV[4] id beyond which to begin, or ''
--
-- Returns id, alarm, id, alarm, ...

local key, now, limit = KEYS[1], ARGV[1], tonumber(ARGV[2])
if ARGV[3] == '' then
  return redis.call('zrangebyscore', key, '-inf', now, 'withscores', 'limit', 0, limit)
end

local function beyond(id, mark)
  for at = 1, 16 do
    local left, right = string.byte(id, at), string.byte(mark, at)
    if left ~= right then
      return left > right
    end
  end
  return false
end

-- Alarms of one moment are many when tasks came in bulk: find the place among them by halving, not by walking.
local low = redis.call('zcount', key, '-inf', '(' .. ARGV[3])
local high = redis.call('zcount', key, '-inf', ARGV[3])
while low < high do
  local middle = math.floor((low + high) / 2)
  if beyond(redis.call('zrange', key, middle, middle)[1], ARGV[4]) then
    high = middle
  else
    low = middle + 1
  end
end
local last = redis.call('zcount', key, '-inf', now)
local count = math.min(limit, last - low)
if count <= 0 then
  return {}
end
return redis.call('zrange', key, low, low + count - 1, 'withscores')
