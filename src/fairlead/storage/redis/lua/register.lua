-- Take note of the slots that have tasks, and when they were last used.
--
-- KEYS[1]  the registry, a sorted set of slots by the server's time in seconds
-- ARGV     slots
--
-- Returns 1.

local now = redis.call('time')[1]
for at = 1, #ARGV do
  redis.call('zadd', KEYS[1], now, ARGV[at])
end
return 1
