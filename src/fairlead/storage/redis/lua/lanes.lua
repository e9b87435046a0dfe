-- Put in front of the scripts that claim, behind selection.lua: the lanes of one queue and priority, which are a line: they
-- are in the same order under every table.
--
-- A queue is { base, name, tables, share, passed, top, lines }, a line { queue, priority, heap, head }, where the heap has
-- the lanes that have a task left, the one with the oldest head in front. Not all of them need be in it: see views.lua.

-- The keys of which some are there if tasks of a queue wait that have concurrency keys or take turns.
local function keys_of_keyed(base, name)
  return { base .. 'w' .. name, base .. 'u0' .. name, base .. 'u1' .. name, base .. 'u2' .. name, base .. 'u3' .. name }
end

-- Whether that set is there, if it is needed.
local function is_known()
  return not selected or call('sismember', selected, '!') == 1
end

-- Of each of these kinds whether the claim may take its tasks.
local function admitted(kinds)
  local verdicts = {}
  for at, kind in ipairs(kinds) do
    verdicts[at] = may_take(kind)
  end
  for first = 1, selected and #kinds or 0, PIECE / 2 do
    local last, asked = math.min(first + PIECE / 2 - 1, #kinds), {}
    for at = first, last do
      asked[#asked + 1], asked[#asked + 2] = '+' .. kinds[at][2], '-' .. kinds[at][2]
    end
    local told = call('smismember', selected, unpack(asked))
    for at = first, last do
      local place = 2 * (at - first) + 1
      verdicts[at] = verdicts[at] and (told[place] == 1 or not knows_types) and told[place + 1] == 0
    end
  end
  return verdicts
end

local function queue_of(base, name, tables, share)
  return { base = base, name = name, rules = tables, turns = share, lines = {}, stale = false }
end

-- Read what most queues of a claim that has many of them are not asked for: they have no tasks.
local function read_rules(queue)
  queue.tables, queue.stale = cmsgpack.unpack(queue.rules), true
  if queue.turns ~= '' then
    local share = cmsgpack.unpack(queue.turns)
    queue.share, queue.passed, queue.top = share, share[3], math.huge
    for _, rule in ipairs(queue.tables[1]) do
      queue.top = math.min(queue.top, rule[1])
    end
  end
end

local function line_of_priority(queue, priority)
  for _, line in ipairs(queue.lines) do
    if line.priority == priority then
      return line
    end
  end
  if #queue.lines == 0 then
    read_rules(queue)
  end
  local line = { queue = queue, priority = priority, heap = {}, head = false }
  queue.lines[#queue.lines + 1] = line
  return line
end

-- Let a lane's head be the next one it has; heads are fetched a few at a time, as they are needed.
local function advance(lane)
  lane.at = lane.at + 2
  if lane.at > #lane.heads then
    lane.heads = call('zrange', lane.key, lane.taken, lane.taken + lane.fetch - 1, 'withscores')
    if #lane.heads < 2 * lane.fetch then
      lane.size = lane.taken + #lane.heads / 2
    end
    lane.fetch = math.min(2 * lane.fetch, limit)
    lane.at = 1
  end
  lane.id = lane.heads[lane.at]
  lane.ready_at = tonumber(lane.heads[lane.at + 1])
end

local NO_HEADS = {}

-- All that a lane may come to know is named here: a table that grows is made twice.
local function lane_in(line, name)
  local queue = line.queue
  return {
    line = line, queue = queue, name = name, key = queue.base .. 'l' .. name, advance = advance, heads = NO_HEADS, at = 1,
    taken = 0, gone = 0, moved = 0, fetch = math.min(4, limit), size = false, id = false, ready_at = false, met = false,
    is_counted = false,
  }
end

local function is_older(lane, other)
  return lane.ready_at < other.ready_at or (lane.ready_at == other.ready_at and before(lane.id, other.id))
end

-- Let the front of a heap find its place in it: it has another head, or has taken the place of one that is gone.
local function sink(heap)
  local lane, at, size = heap[1], 1, #heap
  while 2 * at <= size do
    local below = 2 * at
    if below < size and is_older(heap[below + 1], heap[below]) then
      below = below + 1
    end
    if not is_older(heap[below], lane) then
      break
    end
    heap[at], at = heap[below], below
  end
  heap[at] = lane
end

local function push(heap, lane)
  local at = #heap + 1
  while at > 1 and is_older(lane, heap[math.floor(at / 2)]) do
    heap[at], at = heap[math.floor(at / 2)], math.floor(at / 2)
  end
  heap[at] = lane
end

-- Take the front lane out of a heap.
local function pop(heap)
  local last = table.remove(heap)
  if #heap > 0 then
    heap[1] = last
    sink(heap)
  end
end

local FEW_QUEUES = 4 -- as many are each looked at

-- The places of the queues of a claim that have ready tasks; of many that have none no one is looked at by itself.
-- Their names are in ARGV: the first there, and each so many words behind the one before.
local function queues_with_tasks(first_word, words)
  local places, keys = {}, {}
  local function look_for(first, last)
    local size, found = last - first + 1, nil
    if size > FEW_QUEUES then
      found = call('exists', unpack(keys, first, last))
    end
    if not found or 4 * found >= size then
      for at = first, last do
        places[#places + 1] = at
      end
    elseif found > 0 then
      local middle = math.floor((first + last) / 2)
      look_for(first, middle)
      look_for(middle + 1, last)
    end
  end
  local number = #KEYS - 1
  for at = 1, number > FEW_QUEUES and number or 0 do
    keys[at] = KEYS[at] .. 'q' .. ARGV[first_word + words * (at - 1)]
  end
  for first = 1, number, PIECE do
    look_for(first, math.min(first + PIECE - 1, number))
  end
  return places
end

local open_view, close_view
local is_crowded = false -- whether any of the queues has many lanes
local read_on -- views.lua says how the lanes come to a line that are not all in it yet
local equip -- claim_limited.lua says what else it needs to know of a lane
local line_up_fair, refresh -- fair_lines.lua says how lanes come to a line whose tasks take turns, and which is its head

-- Let the lanes of a queue come to its lines, all of them; `ready` is lane, descriptor, ...
local function line_up(queue, ready)
  local kinds = {}
  for entry = 2, #ready, 2 do
    kinds[#kinds + 1] = cmsgpack.unpack(ready[entry])
  end
  for at, verdict in ipairs(admitted(kinds)) do
    if verdict then
      local name, kind = ready[2 * at - 1], kinds[at]
      local line = line_of_priority(queue, tonumber(string.sub(name, 9)))
      if kind[5] and line_up_fair then
        line_up_fair(line, name, kind)
      else
        local lane = lane_in(line, name)
        lane.kind = kind
        if equip then
          equip(lane)
        end
        line.heap[#line.heap + 1] = lane
      end
    end
  end
end

-- Let each lane of a line have its head.
local function order(line)
  local lanes = line.heap
  line.heap = {}
  for _, lane in ipairs(lanes) do
    lane.advance(lane)
    if lane.id then
      push(line.heap, lane)
    end
  end
  line.head = line.heap[1]
end

-- Let a line have another head: its lane goes on, or takes no more part.
local function step(line, is_over)
  local lane = line.head
  if not is_over then
    lane.advance(lane)
  end
  if lane.id and not is_over then
    sink(line.heap)
  else
    pop(line.heap)
  end
  if line.view then
    read_on(line)
  end
  line.head = line.heap[1]
  line.queue.stale = true
end
