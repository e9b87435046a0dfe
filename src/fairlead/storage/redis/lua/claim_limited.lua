-- Take the best ready tasks that limits leave room for: what claim.lua does when there are limits or concurrency keys.
--
-- KEYS, ARGV[1…11]  as in claim.lua
-- ARGV     per queue: its name, its tables, its limits (msgpack, see limits.lua), the limit of each key packed by itself
--
-- Returns as claim.lua does, but never -1.

local lanes, fronts, queues = {}, {}, {}

local function advance_keyed(lane)
  local head = call('zrange', lane.front, 0, 0, 'withscores')
  lane.id, lane.ready_at = head[1], tonumber(head[2])
end

for at = 1, #KEYS - 1 do
  local base, first = KEYS[at], 8 + 4 * at
  local queue, tables = ARGV[first], cmsgpack.unpack(ARGV[first + 1])
  local limits = limits_of(base, queue, ARGV[first + 2], ARGV[first + 3])
  queues[at] = limits
  local ready, keyed, kinds = call('hgetall', base .. 'q' .. queue), {}, {}
  for entry = 1, #ready, 2 do
    local kind = cmsgpack.unpack(ready[entry + 1])
    kinds[ready[entry]] = kind
    if kind[4] then
      keyed[#keyed + 1] = ready[entry]
    end
  end
  look(limits, keyed, now)
  for name, kind in pairs(kinds) do
    if admits(kind) then
      local lane = {
        limits = limits, name = name, type = kind[2], keyed = kind[4], key = base .. 'l' .. name,
        front = base .. 'f' .. name, tables = tables, priority = tonumber(string.sub(name, 9)),
        heads = {}, at = 1, taken = 0, gone = 0, moved = 0, fetch = 4, id = false, ready_at = false,
      }
      lane.head = lane
      lane.advance = lane.keyed and advance_keyed or advance
      lane.advance(lane)
      lanes[#lanes + 1] = lane
      fronts[#fronts + 1] = lane
    end
  end
end

local function choose(turn)
  local best, place
  for at, lane in ipairs(fronts) do
    if lane.id then
      judge(lane, turn)
      if not best or lane.rank < best.rank or (lane.rank == best.rank and (lane.mark < best.mark
          or (lane.mark == best.mark and before(lane.id, best.id)))) then
        best, place = lane, at
      end
    end
  end
  return best, place
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

local answer, size, number = { 0 }, 0, 0
while number < limit do
  local lane, place = choose(first_turn + number)
  if not lane then
    break
  end
  if size >= enough then
    answer[1] = 1
    break
  end
  local limits, id = lane.limits, lane.id
  if is_shut(limits, lane.type, now) then
    table.remove(fronts, place)
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
        number, size = number + 1, size + #after
        answer[#answer + 1] = id
        answer[#answer + 1] = after
      end
    end
    lane.advance(lane)
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
for _, limits in ipairs(queues) do
  keep_dues(limits, now)
end
return answer
