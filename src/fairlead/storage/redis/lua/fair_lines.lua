-- Put in front of claim_limited.lua, behind views.lua: lines of which some tasks take turns.
--
-- Such a line has three heaps of lanes: others, those of fair tasks by age, and the same by turn. Its head is the oldest
-- task that may be taken, which stands for it between priorities and queues. What is taken by one order is passed over
-- in the other, and nothing is taken out of the lanes before the end.

local FAIR_KIND = '\149' -- as much of a fair kind's descriptor as is looked at

local READ = 16 -- values per call

-- The value of a lane's head, of fair tasks, and its fair key, if it can be read: read beside those behind it, with what is
-- known of their keys.
local function fair_value(line, lane)
  local id = lane.id
  if line.values[id] == nil then
    local found, names, keys = {}, {}, {}
    for at = lane.at, math.min(lane.at + 2 * READ - 2, #lane.heads - 1, lane.at + 2 * (limit - 1)), 2 do
      if line.values[lane.heads[at]] == nil then
        found[#found + 1], names[#names + 1] = lane.heads[at], line.queue.base .. 't' .. lane.heads[at]
      end
    end
    for at, value in ipairs(call('mget', unpack(names))) do
      local has_key, key = pcall(fair_in, value or '')
      line.values[found[at]], line.named[found[at]] = value, has_key and key
      if has_key then
        keys[#keys + 1] = key
      end
    end
    read_fair_keys(line.turns, keys)
  end
  return line.values[id], line.named[id]
end

-- Have a line for the lanes of fair tasks, too.
local function make_fair(line)
  if not line.turns then
    line.turns = fair_line(line.queue.base, line.queue.name, line.priority)
    line.by_age, line.by_turn, line.gone, line.taken, line.moved = {}, {}, {}, {}, {}
    line.values, line.named = {}, {}
  end
end

-- Let a lane of fair tasks come to a line, by age and by turn.
line_up_fair = function(line, name, kind)
  make_fair(line)
  line.queue.fair_kinds = line.queue.fair_kinds or {}
  line.queue.fair_kinds[string.sub(name, 1, 8)] = FAIR_KIND
  local aged = lane_in(line, name)
  local turned = lane_in(line, name)
  turned.key = line.queue.base .. 'x' .. name
  for _, lane in ipairs({ aged, turned }) do
    lane.kind, lane.limits, lane.type = kind, line.queue.limits, kind[2]
    lane.advance(lane)
    if lane == aged and lane.id then
      join_oldest(line.queue.base, line.queue.name, name, lane.id)
    end
    if lane.id then
      push(lane == aged and line.by_age or line.by_turn, lane)
    end
  end
end

-- The key of a lane's head, of tasks with concurrency keys; none if it cannot be read, as whoever takes it finds.
local function key_of_head(lane)
  if lane.read ~= lane.id then
    local value = call('get', lane.queue.base .. 't' .. lane.id)
    lane.read, lane.head_key = lane.id, value and key_in(value)
  end
  return lane.head_key
end

-- Let the lane in front of a heap have its next head.
local function advance_in(line, lane, heap)
  if heap ~= line.heap then
    lane.taken = lane.taken + 1
  end
  lane.advance(lane)
  if lane.id then
    sink(heap)
  else
    pop(heap)
  end
  line.queue.stale = true
end

-- The lane with the best head in a heap that is still there and may be taken.
local function front_of(line, heap)
  while heap[1] do
    local lane = heap[1]
    if is_shut(lane.limits, lane.type, now) then
      pop(heap)
    else
      local key = lane.keyed and key_of_head(lane)
      local opens = key and opens_at(of_key(lane.limits, key), now) or now
      if not line.gone[lane.id] and opens <= now then
        return lane
      elseif opens > now then
        close(lane.limits, lane.name, key, lane.id, opens)
      end
      advance_in(line, lane, heap)
    end
  end
  return nil
end

-- Have the head of a line be its oldest task.
refresh = function(line)
  local fair, other = front_of(line, line.by_age), front_of(line, line.heap)
  line.oldest_is_other = other and not (fair and is_older(fair, other))
  line.head = line.oldest_is_other and other or fair
end

-- The lane to take from, of a line that is served: by age, or whose turn it is.
local function lane_to_serve(line, by_age)
  if by_age then
    return line.head, line.oldest_is_other and line.heap or line.by_age
  end
  local fair, other = front_of(line, line.by_turn), front_of(line, line.heap)
  if not fair and not other then
    return line.head, line.by_age -- turns that an earlier version has not given
  elseif not fair then
    return other, line.heap
  elseif other then
    local turn = turn_of_others(line.turns)
    if turn < fair.ready_at or (turn == fair.ready_at and before(other.id, fair.id)) then
      return other, line.heap
    end
  end
  return fair, line.by_turn
end

-- Take note of who is served by its turn, before its lane goes on.
local function serve_turn(line, lane, heap)
  local turns = line.turns
  if heap == line.by_turn then
    line.gone[lane.id] = true
    if front_of(line, line.heap) then
      turns.others = turn_of_others(turns)
    end
    turns.reached = math.max(turns.reached, lane.ready_at)
    turns.changed = true
  elseif heap == line.heap and front_of(line, line.by_turn) then
    turns.reached = math.max(turns.reached, turn_of_others(turns))
    turns.others = turns.reached + STEP
    turns.changed = true
  end
end

-- Whether a value is that of a task that is queued at a priority; an earlier version leaves others among the turns.
local function is_queued(value, priority)
  local is_task, _, at = pcall(cmsgpack.unpack_one, value, 1)
  return is_task and string.sub(value, at + 4, at + 11) == '\166queued' .. string.char(priority)
end

-- Take what was taken of a line's fair tasks out of its lanes.
local function take_out_fair(line, counted)
  for name, ids in pairs(line.taken) do
    local base = line.queue.base
    write('zrem', base .. 'x' .. name, ids)
    local gone = 0
    for first = 1, #ids, PIECE do
      gone = gone + call('zrem', base .. 'l' .. name, unpack(ids, first, math.min(first + PIECE - 1, #ids)))
    end
    counted[name .. 'q'] = -gone
    counted[name .. 'e'] = line.moved[name]
  end
end
