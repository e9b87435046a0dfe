-- Take the best ready tasks that limits leave room for: what claim.lua does when there are limits or concurrency keys.
--
-- KEYS, ARGV[1…13]  as in claim.lua
-- ARGV     per queue: its name, its tables, how turns are shared, its limits (msgpack, see limits.lua), the limit of each
--          key packed by itself
--
-- Returns as claim.lua does, but never -1 and -2, and instead of 0 and 1 as many as 2 more if no task with a concurrency
-- key waits.

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
local busy, lists = queues_with_tasks(14, 5), {}
for place, at in ipairs(busy) do
  lists[place] = KEYS[at] .. 'w' .. ARGV[9 + 5 * at]
end
-- How many of them have tasks with keys; too many to ask at once are each asked.
local keyed = #lists > PIECE and #lists or #lists > 0 and call('exists', unpack(lists))
for place, at in ipairs(busy) do
  local base, first = KEYS[at], 9 + 5 * at
  local name = ARGV[first]
  local queue = queue_of(base, name, ARGV[first + 1], ARGV[first + 2])
  queue.limits = limits_of(base, name, ARGV[first + 3], ARGV[first + 4], limit)
  queue.taken_from = {}
  queues[#queues + 1] = queue
  if keyed > 0 and (#lists == 1 or call('exists', lists[place]) == 1) then
    has_keys = true
    look(queue.limits, now)
    write_news()
  end
  local view, state = open_view(queue)
  if state then
    return { state }
  elseif not view then
    line_up(queue, call('hgetall', base .. 'q' .. name))
    for _, line in ipairs(queue.lines) do
      order(line)
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
  if is_closed(limits, now) then
    line.queue.best, line.queue.stale = nil, false
  elseif is_shut(limits, lane.type, now) then
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
    if number < limit then
      step(line, false)
    elseif line.view then
      lane.advance(lane) -- nobody asks who is next in the line
    end
  end
end

write_held()
local emptied = {}
for _, queue in ipairs(queues) do
  local base, counted = queue.base, {}
  for lane in pairs(queue.taken_from) do
    counted[lane.name .. 'q'] = -lane.gone
    counted[lane.name .. 'e'] = lane.moved
    if not lane.keyed then
      take_out(lane, emptied)
    end
  end
  if next(counted) then
    count(base, counted, function()
      return queue.name
    end)
  end
  close_view(queue)
  keep_dues(queue.limits, now)
end
remove_all(emptied)
write_news()
answer[1] = answer[1] + (has_keys and 0 or 2) + (is_crowded and 0 or 4)
return answer
