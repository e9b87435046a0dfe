-- How far the turns of a line have come, and which keys have how many tasks waiting in it.
--
-- KEYS[1]  the hash of the line, see fair.lua
-- ARGV[1]  how many keys at most beside those that are named
-- ARGV     keys
--
-- Returns reached, others, how many keys there are, and key, number, key, number, ...: of those that were named first, then
-- of others, those with most tasks if there are at most 1,000 keys.

local KNOWN = 1000

local key, most = KEYS[1], tonumber(ARGV[1])
local line = redis.call('hget', key, 'l')
if not line then
  return { '0', '0', '0' }
end
local reached, others = struct.unpack('>I7I7', line)
local number = redis.call('hlen', key) - 1
local answer = { string.format('%.0f', reached), string.format('%.0f', others), number }
local named = {}

local function waiting_in(stored)
  local _, waiting = struct.unpack('>I7I5', stored)
  return waiting
end

local function tell(name, waiting)
  local last = #answer
  answer[last + 1], answer[last + 2] = name, waiting
end

for at = 2, #ARGV do
  local stored = redis.call('hget', key, 'k' .. ARGV[at])
  if stored and not named[ARGV[at]] then
    tell(ARGV[at], waiting_in(stored))
  end
  named[ARGV[at]] = true
end

if most > 0 then
  local fields
  if number <= KNOWN then
    fields = redis.call('hgetall', key)
  else
    fields = redis.call('hscan', key, '0', 'count', most + #ARGV)[2]
  end
  local found = {}
  for at = 1, #fields, 2 do
    local name = string.sub(fields[at], 2)
    if string.sub(fields[at], 1, 1) == 'k' and not named[name] then
      found[#found + 1] = { name = name, waiting = waiting_in(fields[at + 1]) }
    end
  end
  table.sort(found, function(one, other)
    return one.waiting > other.waiting
  end)
  for at = 1, math.min(most, #found) do
    tell(found[at].name, found[at].waiting)
  end
end
return answer
