-- Take the best ready tasks that limits leave room for: what claim.lua does when there are limits, concurrency keys or
-- turns.
--
-- KEYS, ARGV[1…13]  as in claim.lua
-- ARGV     per queue: its name, its tables, how turns are shared, its limits (msgpack, see limits.lua), the limit of each
--          key packed by itself
--
-- Returns as claim.lua does, but never -1 and -2, and instead of 0 and 1 as many as 2 more if no task with a concurrency
-- key waits, and none that takes turns.

local queues, has_keys = {}, false

local function advance_keyed(lane)
  local head = call('zrange', lane.front, 0, 0, 'withscores')
  lane.id, lane.ready_at = head[1], tonumber(head[2])
end

equip = function(lane)
  local queue, kind = lane.line.queue, lane.kind
  lane.limits, lane.type, lane.keyed, lane.front = queue.limits, kind[2], kind[4], queue.base .. 'f' .. lane.name
  lane.advance = lane.keyed and advance_keyed or advance
end

if not is_known() then
  return { -4 }
end
local busy, names = queues_with_tasks(14, 5), {}
for _, at in ipairs(busy) do
  for _, name in ipairs(keys_of_keyed(KEYS[at], ARGV[9 + 5 * at])) do
    names[#names + 1] = name
  end
end
local keyed = 0 -- how many of them are there
for first = 1, #names, PIECE do
  keyed = keyed + call('exists', unpack(names, first, math.min(first + PIECE - 1, #names)))
end
for place, at in ipairs(busy) do
  local base, first = KEYS[at], 9 + 5 * at
  local name = ARGV[first]
  local queue = queue_of(base, name, ARGV[first + 1], ARGV[first + 2])
  queue.limits = limits_of(base, name, ARGV[first + 3], ARGV[first + 4], limit)
  queue.taken_from = {}
  queues[#queues + 1] = queue
  if keyed > 0 and call('exists', names[5 * place - 4]) == 1 then
    has_keys = true
    look(queue.limits, now)
    write_news()
  end
  -- By views nobody finds whose turn it is.
  local has_turns = keyed > 0 and call('exists', unpack(names, 5 * place - 3, 5 * place)) > 0
  has_keys = has_keys or has_turns
  local view, state
  if not has_turns then
    view, state = open_view(queue)
  end
  if state then
    return { state }
  elseif not view then
    line_up(queue, call('hgetall', base .. 'q' .. name))
    for _, line in ipairs(queue.lines) do
      order(line)
      has_keys = has_keys or line.turns
    end
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
  lane.line.queue.taken_from[lane] = true
  if not value then
    return
  end
  if key then
    queue_off(limits.base, limits.name, lane.name, key, id)
    come(limits.base, limits.name, lane.name, key)
    count_running(limits.base, limits.name, key, 1)
  end
  count_start(limits, lane.type, key, now)
  lane.moved = lane.moved + 1
  hold(limits.base, id, value, lease_end, alarm)
end

-- Take a fair task, of whose lane this is the head in one of the line's orders, and hold it; one that waits no more, as far
-- as its value says, goes out of the lanes.
local function take_fair(line, lane, key, after, lease_end, alarm)
  local id = lane.id
  line.gone[id] = true
  local ids = line.taken[lane.name] or {}
  ids[#ids + 1], line.taken[lane.name] = id, ids
  if key then
    leave(line.turns, key)
  end
  if after then
    count_start(lane.limits, lane.type, nil, now)
    line.moved[lane.name] = (line.moved[lane.name] or 0) + 1
    hold(lane.limits.base, id, after, lease_end, alarm)
  end
end

local answer, size, number = { 0 }, 0, 0

-- Take note that a task was taken, and answer with it.
local function give(line, id, value)
  serve(line)
  number, size = number + 1, size + #value
  answer[#answer + 1] = id
  answer[#answer + 1] = value
end

-- Go on with a lane from which something was taken, or was to be.
local function go_on(line, lane, heap)
  if line.turns then
    advance_in(line, lane, heap)
  elseif number < limit then
    step(line, false)
  elseif line.view then
    lane.advance(lane) -- nobody asks who is next in the line
  end
end

while number < limit do
  local line = choose(queues, first_turn + number)
  if not line then
    break
  end
  if size >= enough then
    answer[1] = 1
    break
  end
  local lane, heap, by_age = line.head, line.heap, false
  if line.turns then
    by_age = line.queue.rank < line.own
    lane, heap = lane_to_serve(line, by_age)
  end
  local limits, id, fair = lane.limits, lane.id, heap ~= line.heap
  if is_closed(limits, now) then
    line.queue.best, line.queue.stale = nil, false
  elseif not line.turns and is_shut(limits, lane.type, now) then
    step(line, true)
  else
    local value, named
    if fair then
      value, named = fair_value(line, lane)
    else
      value = call('get', limits.base .. 't' .. id)
    end
    local after, lease_end, alarm
    if value and not (fair and not is_queued(value, line.priority)) then
      after, lease_end, alarm = leased_value(value, now, till, grace, worker, token)
      if not after or lane.keyed and not key_in(value) or fair and not named then
        answer[#answer + 1], answer[#answer + 2] = id .. '!', value
        break
      end
    end
    local key = after and lane.keyed and key_in(value) or nil
    local opens = key and opens_at(of_key(limits, key), now) or now
    if opens > now then
      close(limits, lane.name, key, id, opens)
    else
      if line.turns and after and not by_age then
        serve_turn(line, lane, heap)
      end
      if fair then
        take_fair(line, lane, named, after, lease_end, alarm)
      else
        take(lane, key, after, lease_end, alarm)
      end
      if after then
        give(line, id, after)
      end
    end
    go_on(line, lane, heap)
  end
end

write_held()
local emptied = {}
for _, queue in ipairs(queues) do
  local base, counted = queue.base, {}
  for _, line in ipairs(queue.lines) do
    if line.turns then
      take_out_fair(line, counted)
    end
  end
  for lane in pairs(queue.taken_from) do
    counted[lane.name .. 'q'] = -lane.gone
    counted[lane.name .. 'e'] = lane.moved
    if not lane.keyed then
      take_out(lane, emptied)
    end
  end
  write_lines()
  if next(counted) then
    count(base, counted, function(kind)
      return queue.name, queue.fair_kinds and queue.fair_kinds[kind]
    end)
  end
  close_view(queue)
  keep_dues(queue.limits, now)
end
remove_all(emptied)
write_news()
answer[1] = answer[1] + (has_keys and 0 or 2) + (is_crowded and 0 or 4)
return answer
