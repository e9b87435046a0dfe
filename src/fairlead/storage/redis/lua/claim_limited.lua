-- Take the best ready tasks that limits leave room for: what claim.lua does when there are limits or concurrency keys.
--
-- KEYS, ARGV[1…11]  as in claim.lua
-- ARGV     per queue: its name, its tables, how turns are shared, its limits (msgpack, see limits.lua), the limit of each
--          key packed by itself
--
-- Returns as claim.lua does, but never -1.

local lanes, queues = {}, {}

local function advance_keyed(lane)
  local head = call('zrange', lane.front, 0, 0, 'withscores')
  lane.id, lane.ready_at = head[1], tonumber(head[2])
end

for at = 1, #KEYS - 1 do
  local base, first = KEYS[at], 7 + 5 * at
  local name = ARGV[first]
  local queue = queue_of(base, name, ARGV[first + 1], ARGV[first + 2])
  queue.limits = limits_of(base, name, ARGV[first + 3], ARGV[first + 4])
  queues[at] = queue
  local ready, keyed, kinds = call('hgetall', base .. 'q' .. name), {}, {}
  for entry = 1, #ready, 2 do
    local kind = cmsgpack.unpack(ready[entry + 1])
    kinds[ready[entry]] = kind
    if kind[4] then
      keyed[#keyed + 1] = ready[entry]
    end
  end
  look(queue.limits, keyed, now)
  for lane_name, kind in pairs(kinds) do
    if admits(kind) then
      local line = line_of_priority(queue, tonumber(string.sub(lane_name, 9)))
      local lane = lane_in(line, lane_name)
      lane.limits, lane.type, lane.keyed, lane.front = queue.limits, kind[2], kind[4], base .. 'f' .. lane_name
      lane.advance = lane.keyed and advance_keyed or advance
      lane.advance(lane)
      lanes[#lanes + 1] = lane
      if lane.id then
        push(line.heap, lane)
      end
    end
  end
  for _, line in ipairs(queue.lines) do
    line.head = line.heap[1]
  end
end

-- Take the head of a lane out of it, and hold its task if there is one, which is then as given.
local function take(lane, key, value, lease_end, alarm)
  local limits, id = lane.limits, lane.id
  if lane.keyed then
    call('zrem', lane.key, id)
    call('zrem', lane.front, id)
  end
  lane.taken, lane.gone = lane.taken + 1, lane.gone + 1
  if not value then
    return
  end
  if key then
    queue_off(limits.base, limits.name, lane.name, key, id)
    come(limits.base, lane.name, key)
    count_running(limits.base, limits.name, key, 1)
  end
  count_start(limits, lane.type, key, now)
  lane.moved = lane.moved + 1
  hold(limits.base, id, value, lease_end, alarm)
end

-- Let the line of its head have another one.
local function step(line, is_left_out)
  local lane = line.head
  if not is_left_out then
    lane.advance(lane)
  end
  if lane.id and not is_left_out then
    sink(line.heap)
  else
    pop(line.heap)
  end
  line.head = line.heap[1]
  line.queue.stale = true
end

local answer, size, number = { 0 }, 0, 0
while number < limit do
  local line = choose(queues, first_turn + number)
  if not line then
    break
  end
  if size >= enough then
    answer[1] = 1
    break
  end
  local lane = line.head
  local limits, id = lane.limits, lane.id
  if is_shut(limits, lane.type, now) then
    step(line, true)
  else
    local value = call('get', limits.base .. 't' .. id)
    local after, lease_end, alarm
    if value then
      after, lease_end, alarm = leased_value(value, now, till, grace, worker, token)
      if not after or lane.keyed and not key_in(value) then
        answer[#answer + 1], answer[#answer + 2] = id .. '!', value
        break
      end
    end
    local key = value and lane.keyed and key_in(value) or nil
    local opens = key and opens_at(of_key(limits, key), now) or now
    if opens > now then
      close(limits, lane.name, key, id, opens)
    else
      take(lane, key, after, lease_end, alarm)
      if after then
        serve(line)
        number, size = number + 1, size + #after
        answer[#answer + 1] = id
        answer[#answer + 1] = after
      end
    end
    step(line, false)
  end
end

for _, lane in ipairs(lanes) do
  if lane.gone > 0 then
    local base = lane.limits.base
    if not lane.keyed then
      call('zremrangebyrank', lane.key, 0, lane.gone - 1)
    end
    count(base, lane.name, 'q', -lane.gone, lane.limits.name)
    if lane.moved > 0 then
      count(base, lane.name, 'e', lane.moved)
    end
  end
end
for _, queue in ipairs(queues) do
  keep_dues(queue.limits, now)
end
return answer
