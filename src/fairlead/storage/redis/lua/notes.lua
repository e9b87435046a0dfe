-- Some notes of one slot, hidden from other readers for a while.
--
-- KEYS[1]  the slot's base
-- ARGV[1]  how many at most      ARGV[2]  for how many milliseconds they are hidden
--
-- Returns members of the outbox: an id, or an id and '-' for a task that was removed.

local outbox = KEYS[1] .. 'o'
local now = math.floor(clock() / 1000)
local found = redis.call('zrangebyscore', outbox, '-inf', now, 'limit', 0, ARGV[1])
-- Nobody hides one for so long: the clock has gone back since.
local foreign = string.format('(%.0f', now + 2 * ARGV[2])
local left = tonumber(ARGV[1]) - #found
for _, member in ipairs(left > 0 and redis.call('zrangebyscore', outbox, foreign, '+inf', 'limit', 0, left) or {}) do
  found[#found + 1] = member
end
local hidden = string.format('%.0f', now + ARGV[2])
for first = 1, #found, 500 do
  local piece = {}
  for at = first, math.min(first + 499, #found) do
    piece[#piece + 1] = hidden
    piece[#piece + 1] = found[at]
  end
  redis.call('zadd', outbox, unpack(piece))
end
return found
