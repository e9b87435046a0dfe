-- Take the best ready tasks: lane heads are merged by the tables given, as fairlead.core.order.serve would.
--
-- KEYS     per queue: its slot's base
-- ARGV[1]  now      ARGV[2]  until    ARGV[3]  grace    ARGV[4]  limit
-- ARGV[5]  turn of the first task: which of a queue's tables it is chosen by
-- ARGV[6]  how many bytes of values are enough: past them no more is taken
-- ARGV[7]  worker   ARGV[8]  token
-- ARGV[9]  capabilities, a msgpack array
-- ARGV[10] types, a msgpack array, or '' for any
-- ARGV[11] excluded types, a msgpack array
-- ARGV     per queue: its name, its tables (msgpack: tables of four lines [rank, head start, [[after, rank], ...]])
--
-- Returns 1 if tasks were left for their size alone, else 0; then id, value, id, value, ... best first. Returns -1, and
-- has taken nothing, when some of the tasks have concurrency keys: claim_limited.lua is to be called.

-- Lanes of one queue and priority are in the same order under every table: the head of the line is the least of theirs.
local function find_head(line)
  local best
  for _, lane in ipairs(line.lanes) do
    if lane.id and (not best or lane.ready_at < best.ready_at
        or (lane.ready_at == best.ready_at and before(lane.id, best.id))) then
      best = lane
    end
  end
  line.head = best
end

local lines, slots = {}, {}
for at = 1, #KEYS do
  local base, queue, tables = KEYS[at], ARGV[10 + 2 * at], cmsgpack.unpack(ARGV[11 + 2 * at])
  local slot = { base = base, added = {}, removed = {} }
  slots[at] = slot
  local by_priority = {}
  local ready = call('hgetall', base .. 'q' .. queue)
  for entry = 1, #ready, 2 do
    local kind = cmsgpack.unpack(ready[entry + 1])
    if admits(kind) then
      if kind[4] then
        return { -1 } -- nothing is written yet
      end
      local priority = tonumber(string.sub(ready[entry], 9))
      local line = by_priority[priority]
      if not line then
        line = { priority = priority, tables = tables, lanes = {} }
        by_priority[priority] = line
        lines[#lines + 1] = line
      end
      local lane = {
        base = base, queue = queue, slot = slot, name = ready[entry], key = base .. 'l' .. ready[entry],
        heads = {}, at = 1, taken = 0, gone = 0, moved = 0, fetch = 4, id = false, ready_at = false,
      }
      advance(lane)
      line.lanes[#line.lanes + 1] = lane
    end
  end
end
for _, line in ipairs(lines) do
  find_head(line)
  if line.head then
    judge(line, first_turn)
  end
end

local taken = {}
while #taken < limit do
  local best
  for _, line in ipairs(lines) do
    if line.head then
      if #line.tables > 1 then
        judge(line, first_turn + #taken)
      end
      if not best or line.rank < best.rank or (line.rank == best.rank and (line.mark < best.mark
          or (line.mark == best.mark and before(line.head.id, best.head.id)))) then
        best = line
      end
    end
  end
  if not best then
    break
  end
  local lane = best.head
  taken[#taken + 1] = { lane = lane, id = lane.id }
  lane.taken = lane.taken + 1
  advance(lane)
  find_head(best)
  if best.head then
    judge(best, first_turn + #taken)
  end
end

local answer, size = { 0 }, 0
for _, take in ipairs(taken) do
  if size >= enough then
    answer[1] = 1
    break
  end
  local lane, id = take.lane, take.id
  lane.gone = lane.gone + 1
  local key = lane.base .. 't' .. id
  local value = call('get', key)
  if value then
    local _, at = cmsgpack.unpack_one(value, 1)
    local status = status_at(value, at)
    if status.clock == 'a' then
      put(lane.slot.removed, 'a', id)
    end
    lease(status, now, till, grace, worker, token)
    value = string.sub(value, 1, at) .. packed(status) .. string.sub(value, status.rest + 1)
    call('set', key, value)
    put(lane.slot.added, 'e', text_of(status.alarm), id)
    if NOTES then
      put(lane.slot.added, 'o', noted_at, id)
    end
    lane.moved = lane.moved + 1
    size = size + #value
    answer[#answer + 1] = id
    answer[#answer + 1] = value
  end
end

for _, line in ipairs(lines) do
  for _, lane in ipairs(line.lanes) do
    if lane.gone > 0 then
      call('zremrangebyrank', lane.key, 0, lane.gone - 1)
      count(lane.base, lane.name, 'q', -lane.gone, lane.queue)
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
