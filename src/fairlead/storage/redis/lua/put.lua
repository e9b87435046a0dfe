-- Store a record if it stands at the version expected.
--
-- KEYS[1]  the hash of the records of one kind
-- ARGV[1]  name     ARGV[2]  value    ARGV[3]  the version expected (0: no such record) or ''
--
-- One whose version cannot be read stands at 0.
--
-- Returns the new version, or nil when the version is another.

local stored = redis.call('hget', KEYS[1], ARGV[1])
local version = stored and tonumber(string.match(stored, '^(%d+) ') or '') or 0
if ARGV[3] ~= '' and tonumber(ARGV[3]) ~= version then
  return false
end
redis.call('hset', KEYS[1], ARGV[1], string.format('%.0f', version + 1) .. ' ' .. ARGV[2])
return version + 1
