-- Forget slots that are empty and were not used for a while.
--
-- KEYS[1]  the registry
-- ARGV[1]  seconds a slot must have been unused
-- ARGV     slots found empty
--
-- Returns how many were forgotten.

local oldest = tonumber(redis.call('time')[1]) - tonumber(ARGV[1])
local retired = 0
for at = 2, #ARGV do
  local used = redis.call('zscore', KEYS[1], ARGV[at])
  if used and tonumber(used) <= oldest then
    retired = retired + redis.call('zrem', KEYS[1], ARGV[at])
  end
end
return retired
