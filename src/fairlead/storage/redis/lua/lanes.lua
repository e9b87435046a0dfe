-- Put in front of the scripts that claim: their common arguments (see claim.lua), which lanes they may take from, and the
-- lanes of one queue and priority, which are a line: they are in the same order under every table.
--
-- A queue is { base, name, tables, share, passed, top, lines }, a line { queue, priority, heap, head }, where the heap has
-- the lanes that have a task left, the one with the oldest head in front.

local now, grace, limit = moment(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4])
local till = now + tonumber(ARGV[2])
local first_turn, enough, worker, token = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], ARGV[8]

local function set_of(list)
  local set = {}
  for _, member in ipairs(list) do
    set[member] = true
  end
  return set
end

local capabilities = set_of(cmsgpack.unpack(ARGV[9]))
local types = ARGV[10] ~= '' and set_of(cmsgpack.unpack(ARGV[10]))
local excluded = set_of(cmsgpack.unpack(ARGV[11]))

local function admits(kind)
  if excluded[kind[2]] or (types and not types[kind[2]]) then
    return false
  end
  for _, capability in ipairs(kind[3]) do
    if not capabilities[capability] then
      return false
    end
  end
  return true
end

local function queue_of(base, name, tables, share)
  local queue = { base = base, name = name, tables = cmsgpack.unpack(tables), lines = {}, stale = true }
  if share ~= '' then
    local given = cmsgpack.unpack(share)
    queue.share, queue.passed, queue.top = given, given[3], math.huge
    for _, rule in ipairs(queue.tables[1]) do
      queue.top = math.min(queue.top, rule[1])
    end
  end
  return queue
end

local function line_of_priority(queue, priority)
  for _, line in ipairs(queue.lines) do
    if line.priority == priority then
      return line
    end
  end
  local line = { queue = queue, priority = priority, heap = {}, head = false }
  queue.lines[#queue.lines + 1] = line
  return line
end

local function lane_in(line, name)
  return {
    line = line, base = line.queue.base, name = name, key = line.queue.base .. 'l' .. name,
    heads = {}, at = 1, taken = 0, gone = 0, moved = 0, fetch = 4, id = false, ready_at = false,
  }
end

-- Let a lane's head be the next one it has; heads are fetched a few at a time, as they are needed.
local function advance(lane)
  lane.at = lane.at + 2
  if lane.at > #lane.heads then
    lane.heads = call('zrange', lane.key, lane.taken, lane.taken + lane.fetch - 1, 'withscores')
    lane.fetch = math.min(2 * lane.fetch, limit)
    lane.at = 1
  end
  lane.id = lane.heads[lane.at]
  lane.ready_at = tonumber(lane.heads[lane.at + 1])
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
