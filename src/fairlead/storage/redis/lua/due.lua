-- The members of one sorted set of alarms up to a moment, earliest first, ids breaking ties.
--
-- KEYS[1]  the sorted set
-- ARGV[1]  now, or '' for the server's clock      ARGV[2]  how many at most
-- ARGV[3]  alarm and ARGV[4] id beyond which to begin, or ''
--
-- Returns id, alarm, id, alarm, ...

local key, now, limit = KEYS[1], ARGV[1], tonumber(ARGV[2])
if now == '' then
  now = string.format('%.0f', clock())
end
if ARGV[3] == '' then
  return redis.call('zrangebyscore', key, '-inf', now, 'withscores', 'limit', 0, limit)
end

local low = count_before(key, ARGV[3], ARGV[4], true)
local last = redis.call('zcount', key, '-inf', now)
local count = math.min(limit, last - low)
if count <= 0 then
  return {}
end
return redis.call('zrange', key, low, low + count - 1, 'withscores')
