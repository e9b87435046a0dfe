-- Put in front of claim.lua, behind selection.lua: what becomes of the tasks that a claim has chosen.

local READ = 16 -- values per call

-- Those chosen, best first: ids, and the lane of each, which is
-- { queue, key, name, gone, moved } and, if that is known, the lane's size, and a queue { base, name, slot }; in the slot is
-- collected what changes there.
local ids, lanes, number = {}, {}, 0
local ready -- the lanes of the only queue, once they are read: lane, descriptor, ...
local answer, size, stored = { 0 }, 0, {}

-- Hold a task that was taken. An error says that its value is no task's: then nothing has changed.
local function hold(lane, id, key, value)
  local _, at = cmsgpack.unpack_one(value, 1)
  local lease_end, alarm
  value, lease_end, alarm = leased(value, at, now, till, grace, worker, token)
  local slot = lane.queue.slot
  if alarm then
    put(slot.removed, 'a', id)
  end
  put(slot.added, 'e', text_of(lease_end), id)
  if NOTES then
    put(slot.added, 'o', noted_at, id)
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

-- Hold the tasks that were chosen, as far as their size allows, and take them out of their lanes.
local function hold_all(slots)
  -- Values are read a few at a time: the last of them may be left for their size.
  while reached < number and answer[1] == 0 do
    local keys = {}
    for at = reached + 1, math.min(reached + READ, number) do
      keys[#keys + 1] = lanes[at].queue.base .. 't' .. ids[at]
    end
    local first, values = reached, call('mget', unpack(keys))
    if not pcall(hold_some, keys, values) then
      answer[#answer + 1], answer[#answer + 2] = ids[reached + 1] .. '!', values[reached - first + 1]
      break
    end
  end
  store_all(stored)
  local emptied = {}
  for at = 1, reached do
    local lane = lanes[at]
    if lane.gone > 0 and not lane.is_counted then
      lane.is_counted = true
      take_out(lane, emptied)
      local queue = lane.queue
      local slot = queue.slot
      if slot.counted then
        slot.counted[lane.name .. 'q'] = -lane.gone
        slot.counted[lane.name .. 'e'] = lane.moved
        slot.queues[string.sub(lane.name, 1, 8)] = queue.name
      else
        local counts = queue.base .. 'n'
        if call('hincrby', counts, lane.name .. 'q', -lane.gone) == 0 then
          call('hdel', counts, lane.name .. 'q')
          list_lanes(queue.base, queue.name, {}, { lane.name })
        end
        if lane.moved > 0 then
          call('hincrby', counts, lane.name .. 'e', lane.moved)
        end
      end
    end
  end
  remove_all(emptied)
  for _, slot in ipairs(slots) do
    if slot.counted and next(slot.counted) then
      count(slot.base, slot.counted, function(kind)
        return slot.queues[kind]
      end)
    end
    for suffix, list in pairs(slot.removed) do
      write('zrem', slot.base .. suffix, list)
    end
    for suffix, list in pairs(slot.added) do
      write('zadd', slot.base .. suffix, list)
    end
  end
end
