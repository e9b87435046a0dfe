-- Store ready tasks of one lane that have no idempotency key, no concurrency key, no alarm and no bound: the common case
-- of add.lua, in a straight line. If one of them is stored already nothing is written, and add.lua is to be called.
--
-- KEYS[1]  the slot's base
-- ARGV[1]  lane     ARGV[2]  queue    ARGV[3]  the kind's descriptor
-- ARGV[4]  how many tasks follow
-- ARGV     per task: ready_at, id
-- ARGV     per task: key, value
--
-- Returns 1 when all are added | nil when add.lua is to be called.

local base, lane, queue, number = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[4])
local values = 5 + 2 * number
if call('msetnx', unpack(ARGV, values)) == 0 then
  return false
end
call('zadd', base .. 'l' .. lane, unpack(ARGV, 5, values - 1))
local ids = {}
for at = 1, number do
  ids[at] = ARGV[4 + 2 * at]
end
plant(base .. 'iw', ids)
if count(base, lane, 'q', number, queue, ARGV[3], true) - number < RINGS then
  ring(base .. 'b' .. queue, number) -- else it rang for those that are ready already
end
return 1
