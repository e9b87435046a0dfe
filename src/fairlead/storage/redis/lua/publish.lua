-- Put values into the feed, and keep it from growing.
--
-- KEYS[1]  the feed, a stream
-- ARGV[1]  how many entries to keep, or a few more: whole nodes of the stream are dropped
-- ARGV[2]  after how many seconds without use the feed goes
-- ARGV[3…] values; if there are none, the feed is trimmed to just as many
--
-- Returns how many entries there are.

for at = 3, #ARGV do
  redis.call('xadd', KEYS[1], 'maxlen', '~', ARGV[1], '*', 'v', ARGV[at])
end
if #ARGV < 3 then
  redis.call('xtrim', KEYS[1], 'maxlen', ARGV[1])
end
redis.call('expire', KEYS[1], ARGV[2])
return redis.call('xlen', KEYS[1])
