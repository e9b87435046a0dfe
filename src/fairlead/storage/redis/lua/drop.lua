-- Remove a record if it stands at the version expected.
--
-- KEYS[1]  the hash of the records of one kind
-- ARGV[1]  name     ARGV[2]  the version expected, or ''
--
-- One whose version cannot be read stands at 0.
--
-- Returns 1 if there was one to remove, else 0.

local stored = redis.call('hget', KEYS[1], ARGV[1])
local version = stored and tonumber(string.match(stored, '^(%d+) ') or '') or 0
if not stored or (ARGV[2] ~= '' and tonumber(ARGV[2]) ~= version) then
  return 0
end
return redis.call('hdel', KEYS[1], ARGV[1])
