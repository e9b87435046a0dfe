-- Store ready tasks that have no idempotency key, no concurrency key, no alarm and no bound: the common case of add.lua,
-- in a straight line. If one of them is stored already nothing is written, and add.lua is to be called.
--
-- KEYS[1]  the slot's base
-- ARGV[1]  how many lanes they are of     ARGV[2]  how many tasks there are
-- ARGV     per lane: lane, queue, the kind's descriptor, how many tasks are of it
-- ARGV     per task, lane by lane: ready_at, id
-- ARGV     per task, in the order of the ids mostly: key, value
--
-- Returns 1 when all are added | nil when add.lua is to be called.

local base, lanes, number = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local first = 3 + 4 * lanes
if call('msetnx', unpack(ARGV, first + 2 * number)) == 0 then
  return false
end
local ids, counted, kinds = {}, {}, {}
for at = 1, number do
  ids[at] = string.sub(ARGV[first + 2 * (number + at - 1)], -ID)
end
for at = 3, 4 * lanes, 4 do
  local last = first + 2 * ARGV[at + 3] - 1
  call('zadd', base .. 'l' .. ARGV[at], unpack(ARGV, first, last))
  counted[ARGV[at] .. 'q'] = tonumber(ARGV[at + 3])
  kinds[string.sub(ARGV[at], 1, 8)] = at + 1
  first = last + 1
end
local numbers = count(base, counted, function(kind)
  return ARGV[kinds[kind]], ARGV[kinds[kind] + 1]
end, true)

local rung = {}
first = 3 + 4 * lanes
for at = 3, 4 * lanes, 4 do
  local lane, queue, last = ARGV[at], ARGV[at + 1], first + 2 * ARGV[at + 3] - 1
  local by = counted[lane .. 'q']
  if numbers[lane .. 'q'] - by < RINGS then -- else it rang for those that are ready already
    rung[queue] = (rung[queue] or 0) + by
  end
  if by == 1 and numbers[lane .. 'q'] == 1 then
    put(news, base .. 'z' .. queue, 'h', entry_of(lane, 'l', ARGV[first], ARGV[last]))
  else
    tell_head(base, queue, lane, ARGV, first, last)
  end
  first = last + 1
end
plant(base .. 'iw', ids)
for queue, times in pairs(rung) do
  ring(base .. 'b' .. queue, times)
end
write_news()
return 1
