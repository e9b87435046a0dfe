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
-- ARGV[12] the name of this selection of lanes by capabilities and types
-- ARGV[13] '' if that is all; else types and excluded types are in a set of this name (see select.lua): '+' types, '-'
--          excluded ones
-- ARGV     per queue: its name, its tables (msgpack: tables of four lines [rank, head start, [[after, rank], ...]]), and
--          how promoted tasks and others take turns (msgpack: [of how many turns, whether everywhere, how often others
--          were served since a promoted task was]), or '' if they do not
--
-- Returns 1 if tasks were left for their size alone, else 0, and 4 more if no queue has many lanes, as far as is asked;
-- then id, value, id, value, ... best first; at the end, id and !, and value of one that is no task's: before it the claim
-- has stopped. Returns, and has taken nothing:
--   -1  some of the tasks have concurrency keys or take turns: claim_limited.lua is to be called
--   -2  a queue has many lanes: this is to be called as claim_crowded, with views.lua
--   -3  a view is not made yet: this is to be called again
--   -4  the set of types is not known: select.lua is to be called

if not is_known() then
  return { -4 }
end
local queues, lines, slots = {}, {}, {}
for _, at in ipairs(queues_with_tasks(14, 3)) do
  local base, first = KEYS[at], 11 + 3 * at
  slots[#slots + 1] = { base = base, added = {}, removed = {}, counted = open_view and {}, queues = {} }
  local queue = queue_of(base, ARGV[first], ARGV[first + 1], ARGV[first + 2])
  queue.slot = slots[#slots]
  local view, state
  if open_view then
    view, state = open_view(queue)
    if state then
      return { state }
    end
  end
  if view then
    if call('exists', unpack(keys_of_keyed(base, queue.name))) > 0 then
      return { -1 } -- tasks with concurrency keys wait, or such as take turns
    end
  else
    ready = ready or call('hgetall', base .. 'q' .. queue.name)
    if #ready > 2 * FEW and not open_view then
      return { -2 }
    end
    line_up(queue, ready)
    ready = nil -- of one queue it is read already
  end
  if #queue.lines > 0 then
    queues[#queues + 1] = queue
    for _, line in ipairs(queue.lines) do
      lines[#lines + 1] = line
      for _, lane in ipairs(line.heap) do
        if lane.kind and lane.kind[4] then
          return { -1 } -- nothing is written yet
        end
      end
    end
  end
end

local function merge()
  for _, line in ipairs(lines) do
    if not line.view then
      order(line)
    end
  end
  while number < limit do
    local line = lines[1]
    if lines[2] then
      line = choose(queues, first_turn + number)
    end
    local lane = line and line.head
    if not lane then
      break
    end
    if lines[2] then
      serve(line)
    end
    number = number + 1
    ids[number], lanes[number] = lane.id, lane
    lane.taken = lane.taken + 1
    if number < limit then
      step(line, false)
    elseif line.view then
      lane.advance(lane) -- nobody asks who is next in the line
    end
  end
end

merge()
hold_all(slots)
if close_view then
  for _, queue in ipairs(queues) do
    close_view(queue)
  end
end
write_news()
if open_view and not is_crowded then
  answer[1] = answer[1] + 4
end
return answer
