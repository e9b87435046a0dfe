-- Store ready tasks that take turns and have no idempotency key, no alarm and no bound: add_ready.lua for fair tasks. If one
-- of them is stored already nothing is written, and add.lua is to be called.
--
-- KEYS[1]  the slot's base
-- ARGV[1]  how many lanes they are of     ARGV[2]  how many tasks there are
-- ARGV     per lane: lane, queue, the kind's descriptor, how many tasks are of it
-- ARGV     per task, in the order in which turns are given: the number of its lane, ready_at, id, fair key, step, its value
--          up to its turn, what is behind that
--
-- Returns 1 when all are added | nil when add.lua is to be called.

local base = KEYS[1]
local lanes, first = {}, 3 + 4 * ARGV[1]
local ids, counted, kinds, stored, keys, steps = {}, {}, {}, {}, {}, {}
local pack, task_key = cmsgpack.pack, base .. 't'

for at = 3, first - 1, 4 do
  local name, queue = ARGV[at], ARGV[at + 1]
  local line = fair_line(base, queue, string.sub(name, 9))
  keys[line] = keys[line] or {}
  local lane = { name = name, queue = queue, line = line, keys = keys[line], by_age = {}, by_turn = {} }
  lanes[tostring((at + 1) / 4)] = lane -- as it is said of tasks
  counted[name .. 'q'] = tonumber(ARGV[at + 3])
  kinds[string.sub(name, 1, 8)] = at + 1
end
for at = first, #ARGV, 7 do
  local named, key = lanes[ARGV[at]].keys, ARGV[at + 3]
  if not named[key] then
    named[key], named[#named + 1] = true, key
  end
  steps[ARGV[at + 4]] = tonumber(ARGV[at + 4])
end
for line, named in pairs(keys) do
  read_fair_keys(line, named)
end
for at = first, #ARGV, 7 do
  local lane, id = lanes[ARGV[at]], ARGV[at + 2]
  local turn = join(lane.line, ARGV[at + 3], steps[ARGV[at + 4]], 0)
  local by_age, by_turn = lane.by_age, lane.by_turn
  local last, number_of_ids = #by_age, #ids + 1
  by_age[last + 1], by_age[last + 2] = ARGV[at + 1], id
  by_turn[last + 1], by_turn[last + 2] = turn, id
  ids[number_of_ids] = id
  stored[2 * number_of_ids - 1], stored[2 * number_of_ids] = task_key .. id, ARGV[at + 5] .. pack(turn) .. ARGV[at + 6]
end
if call('msetnx', unpack(stored)) == 0 then
  return false
end
for _, lane in pairs(lanes) do
  call('zadd', base .. 'l' .. lane.name, unpack(lane.by_age))
  call('zadd', base .. 'x' .. lane.name, unpack(lane.by_turn))
end
write_lines()
local numbers = count(base, counted, function(kind)
  return ARGV[kinds[kind]], ARGV[kinds[kind] + 1]
end, true)

local rung = {}
for _, lane in pairs(lanes) do
  local by = counted[lane.name .. 'q']
  if numbers[lane.name .. 'q'] - by < RINGS then -- else it rang for those that are ready already
    rung[lane.queue] = (rung[lane.queue] or 0) + by
  end
  tell_head(base, lane.queue, lane.name, lane.by_age, 1, #lane.by_age)
end
plant(base .. 'iw', ids)
for queue, times in pairs(rung) do
  ring(base .. 'b' .. queue, times)
end
write_news()
return 1
