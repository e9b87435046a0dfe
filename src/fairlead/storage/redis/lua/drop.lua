-- Remove a record if it stands at the version expected.
--
-- KEYS[1]  the hash of the records of one kind
-- ARGV[1]  name     ARGV[2]  the version expected, or ''
--
-- Returns 1 if there was one to remove, else 0.

local stored = redis.call('hget', KEYS[1], ARGV[1])
if not stored or (ARGV[2] ~= '' and ARGV[2] ~= string.match(stored, '^%d+')) then
  return 0
end
return redis.call('hdel', KEYS[1], ARGV[1])
