-- Take the best ready tasks: lane heads are merged by the tables given, as fairlead.core.queues.order.serve would.
--
-- KEYS     per queue: its slot's base; behind them the absent key
-- ARGV[1]  now, or '' for the server's clock
-- ARGV[2]  how long leases last      ARGV[3]  grace    ARGV[4]  limit
-- ARGV[5]  turn of the first task: which of a queue's tables it is chosen by
-- ARGV[6]  how many bytes of values are enough: past them no more is taken
-- ARGV[7]  worker   ARGV[8]  token
-- ARGV[9]  capabilities, a msgpack array
-- ARGV[10] types, a msgpack array, or '' for any
-- ARGV[11] excluded types, a msgpack array
-- ARGV     per queue: its name, its tables (msgpack: tables of four lines [rank, head start, [[after, rank], ...]]), and
--          how promoted tasks and others take turns (msgpack: [of how many turns, whether everywhere, how often others
--          were served since a promoted task was]), or '' if they do not
--
-- Returns 1 if tasks were left for their size alone, else 0; then id, value, id, value, ... best first; at the end, id
-- and !, and value of one that is no task's: before it the claim has stopped. Returns -1, and
-- has taken nothing, when some of the tasks have concurrency keys: claim_limited.lua is to be called.

local READ = 16 -- values per call

local queues, lines, slots = {}, {}, {}
for at = 1, #KEYS - 1 do
  local base, first = KEYS[at], 9 + 3 * at
  local slot = { base = base, added = {}, removed = {} }
  slots[at] = slot
  local ready = call('hgetall', base .. 'q' .. ARGV[first])
  local queue = #ready > 0 and queue_of(base, ARGV[first], ARGV[first + 1], ARGV[first + 2])
  for entry = 1, #ready, 2 do
    local kind = cmsgpack.unpack(ready[entry + 1])
    if admits(kind) then
      if kind[4] then
        return { -1 } -- nothing is written yet
      end
      local line = line_of_priority(queue, tonumber(string.sub(ready[entry], 9)))
      local lane = lane_in(line, ready[entry])
      lane.slot = slot
      line.heap[#line.heap + 1] = lane
    end
  end
  if queue and #queue.lines > 0 then
    queues[#queues + 1] = queue
    for _, line in ipairs(queue.lines) do
      lines[#lines + 1] = line
      line.lanes = line.heap
    end
  end
end
-- Those taken, best first: ids, and the lane of each.
local ids, lanes, number = {}, {}, 0

-- A lane alone is in the right order by itself.
local function take_all(lane)
  ids = call('zrange', lane.key, 0, limit - 1)
  number = #ids
  for at = 1, number do
    lanes[at] = lane
  end
end

local function merge()
  for _, line in ipairs(lines) do
    line.heap = {}
    for _, lane in ipairs(line.lanes) do
      advance(lane)
      if lane.id then
        push(line.heap, lane)
      end
    end
    line.head = line.heap[1]
  end
  while number < limit do
    local line = choose(queues, first_turn + number)
    if not line then
      break
    end
    local lane = line.head
    serve(line)
    number = number + 1
    ids[number], lanes[number] = lane.id, lane
    lane.taken = lane.taken + 1
    advance(lane)
    if lane.id then
      sink(line.heap)
    else
      pop(line.heap)
    end
    line.head = line.heap[1]
  end
end

if #lines == 1 and #lines[1].lanes == 1 then
  take_all(lines[1].lanes[1])
else
  merge()
end

local answer, size, stored = { 0 }, 0, {}

-- Hold a task that was taken. An error says that its value is no task's: then nothing has changed.
local function hold(lane, id, key, value)
  local _, at = cmsgpack.unpack_one(value, 1)
  local lease_end, alarm
  value, lease_end, alarm = leased(value, at, now, till, grace, worker, token)
  if alarm then
    put(lane.slot.removed, 'a', id)
  end
  put(lane.slot.added, 'e', text_of(lease_end), id)
  if NOTES then
    put(lane.slot.added, 'o', noted_at, id)
  end
  lane.moved = lane.moved + 1
  size = size + #value
  local last = #stored
  stored[last + 1], stored[last + 2] = key, value
  answer[last + 2], answer[last + 3] = id, value
end

local reached = 0 -- how many of those taken are seen to

-- Hold tasks with these keys, as far as their size allows.
local function hold_some(keys, values)
  for at, value in ipairs(values) do
    if size >= enough then
      answer[1] = 1
      return
    end
    local lane = lanes[reached + 1]
    if value then
      hold(lane, ids[reached + 1], keys[at], value)
    end
    lane.gone = lane.gone + 1
    reached = reached + 1
  end
end

-- Values are read a few at a time: the last of them may be left for their size.
while reached < number and answer[1] == 0 do
  local keys = {}
  for at = reached + 1, math.min(reached + READ, number) do
    keys[#keys + 1] = lanes[at].base .. 't' .. ids[at]
  end
  local first, values = reached, call('mget', unpack(keys))
  if not pcall(hold_some, keys, values) then
    answer[#answer + 1], answer[#answer + 2] = ids[reached + 1] .. '!', values[reached - first + 1]
    break
  end
end
store_all(stored)

for _, line in ipairs(lines) do
  for _, lane in ipairs(line.lanes) do
    if lane.gone > 0 then
      call('zremrangebyrank', lane.key, 0, lane.gone - 1)
      count(lane.base, lane.name, 'q', -lane.gone, line.queue.name)
      if lane.moved > 0 then
        count(lane.base, lane.name, 'e', lane.moved)
      end
    end
  end
end
for _, slot in ipairs(slots) do
  for suffix, list in pairs(slot.removed) do
    write('zrem', slot.base .. suffix, list)
  end
  for suffix, list in pairs(slot.added) do
    write('zadd', slot.base .. suffix, list)
  end
end
return answer
