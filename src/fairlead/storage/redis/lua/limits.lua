-- Put in front of the scripts that claim under limits, behind keyed.lua: what limits leave room for, as in
-- fairlead.core.queues.limits, whose arithmetic this repeats.
--
-- A queue is { base, name, queue's limit, types' limits, each key's limit, the last one packed }, where a limit is
-- [running or nil, [interval, slack] or nil].

local LOOKS = 1000 -- how many keys that may go on a claim looks at
local DUES_LIFE = 3600000 -- milliseconds that what is kept of rates outlives the last start that counts

-- `most` is how many tasks are taken at most.
local function limits_of(base, name, limits, under, most)
  local given = cmsgpack.unpack(limits)
  return {
    base = base, name = name, most = most, whole = given[1], types = given[2], key = given[3], under = under, meters = {},
    waiting = base .. 'w' .. name, looks = base .. 'k' .. name, dues = base .. 'g' .. name,
  }
end

-- How many tasks of a queue are executing, of one type or of all; or more than that, where a limit is far off.
local function executing(limits, limit, task_type)
  local leased = call('zcard', limits.base .. 'e') -- of all queues of the slot
  if leased + limits.most <= limit then
    return leased
  end
  if not limits.executing then
    limits.executing = {}
    local queues, stored = {}, call('hgetall', limits.base .. 'd')
    for entry = 1, #stored, 2 do
      queues[stored[entry]] = cmsgpack.unpack(stored[entry + 1])
    end
    local numbers = call('hgetall', limits.base .. 'n')
    for entry = 1, #numbers, 2 do
      local kind = queues[string.sub(numbers[entry], 1, 8)]
      if string.sub(numbers[entry], 10) == 'e' and kind and kind[1] == limits.name then
        limits.executing[kind[2]] = (limits.executing[kind[2]] or 0) + numbers[entry + 1]
      end
    end
  end
  local sum = 0
  for each, number in pairs(limits.executing) do
    if not task_type or task_type == each then
      sum = sum + number
    end
  end
  return sum
end

local function meter(limits, name, limit, count)
  local found = limits.meters[name]
  if not found then
    found = { name = name, most = limit[1], pace = limit[2], running = limit[1] and count() or 0 }
    if found.pace then
      found.due = tonumber(call('zscore', limits.dues, name) or nil)
    end
    limits.meters[name] = found
  end
  return found
end

local function is_foreign(pace, due, now)
  return due > now + 2 * (pace[1] + pace[2])
end

-- From when on one more may start.
local function opens_at(found, now)
  if found.most and found.running >= found.most then
    return NEVER
  elseif not found.pace or not found.due or is_foreign(found.pace, found.due, now) then
    return now
  end
  return found.due - found.pace[2]
end

local function start(found, now)
  found.running = found.running + 1
  local pace, due = found.pace, found.due
  if pace then
    found.due = ((not due or is_foreign(pace, due, now)) and now or math.max(now, due)) + pace[1]
    found.moved = true
  end
end

-- The meters of a queue and of a type in it, as far as these are limited.
local function wide(limits, task_type)
  local found = {}
  if limits.whole[1] or limits.whole[2] then
    found[1] = meter(limits, 'q', limits.whole, function() return executing(limits, limits.whole[1]) end)
  end
  local limit = task_type and limits.types[task_type]
  if limit then
    found[#found + 1] = meter(limits, 't' .. task_type, limit, function() return executing(limits, limit[1], task_type) end)
  end
  return found
end

-- Whether no task of a queue may start, of whatever type.
local function is_closed(limits, now)
  return (limits.whole[1] or limits.whole[2]) and opens_at(wide(limits)[1], now) > now
end

local function is_shut(limits, task_type, now)
  if not limits.types[task_type] and not limits.whole[1] and not limits.whole[2] then
    return false
  end
  for _, found in ipairs(wide(limits, task_type)) do
    if opens_at(found, now) > now then
      return true
    end
  end
  return false
end

local function of_key(limits, key)
  return meter(limits, 'k' .. key, limits.key, function()
    return tonumber(call('hget', limits.base .. 'r' .. limits.name, key) or 0)
  end)
end

-- Count a task that is taken; without a key, `key` is nil.
local function count_start(limits, task_type, key, now)
  if limits.types[task_type] or limits.whole[1] or limits.whole[2] then
    for _, found in ipairs(wide(limits, task_type)) do
      start(found, now)
    end
  end
  if key then
    start(of_key(limits, key), now)
  end
end

-- The key of a head is full until then: its tasks are no longer to be seen.
local function close(limits, lane, key, id, till)
  call('zrem', limits.base .. 'f' .. lane, id)
  call('zadd', limits.looks, string.format('%.0f', till), key)
  call('hset', limits.waiting, '', limits.under)
end

-- The lanes of a queue that have ready tasks with keys.
local function keyed_lanes(limits)
  local lanes, ready = {}, call('hgetall', limits.base .. 'q' .. limits.name)
  for entry = 1, #ready, 2 do
    if is_keyed(ready[entry + 1]) then
      lanes[#lanes + 1] = ready[entry]
    end
  end
  return lanes
end

-- Let the keys come to the front that may go on by now, or were full by another limit.
local function look(limits, now)
  local under = call('hget', limits.waiting, '')
  if under and under ~= limits.under then
    local all = {}
    for _, key in ipairs(call('zrange', limits.looks, 0, -1)) do
      all[#all + 1] = '0'
      all[#all + 1] = key
    end
    write('zadd', limits.looks, all)
    call('hdel', limits.waiting, '')
  end
  local keys = call('zrangebyscore', limits.looks, '-inf', now, 'limit', 0, LOOKS)
  local pace = limits.key[2]
  if pace then
    -- Put off for longer than the rate ever does: by a clock that has gone back since.
    local horizon = string.format('%.0f', now + 2 * (pace[1] + pace[2]))
    for _, key in ipairs(call('zrangebyscore', limits.looks, '(' .. horizon, '(' .. text_of(NEVER), 'limit', 0, LOOKS)) do
      keys[#keys + 1] = key
    end
  end
  local lanes = #keys > 0 and keyed_lanes(limits)
  for _, key in ipairs(keys) do
    call('zrem', limits.looks, key)
    for _, lane in ipairs(lanes) do
      come(limits.base, limits.name, lane, key)
    end
  end
end

-- Write down when the next starts are due, and forget what is past.
local function keep_dues(limits, now)
  local list, last = {}, 0
  for _, found in pairs(limits.meters) do
    if found.moved then
      list[#list + 1] = string.format('%.0f', found.due)
      list[#list + 1] = found.name
      last = math.max(last, found.due)
    end
  end
  if #list > 0 then
    call('zremrangebyscore', limits.dues, '-inf', now)
    write('zadd', limits.dues, list)
    call('pexpire', limits.dues, string.format('%.0f', math.floor((last - now) / 1000) + DUES_LIFE))
  end
end

local stored, added, removed = {}, {}, {} -- what is to be written of the tasks that are held

-- Let a queued task be executing under a lease: its value, when the lease ends and the alarm it had are as `leased`
-- says. The caller takes it out of its lane, or counts it out of it.
local function hold(base, id, value, lease_end, alarm)
  if alarm then
    put(removed, base .. 'a', id)
  end
  local last = #stored
  stored[last + 1], stored[last + 2] = base .. 't' .. id, value
  put(added, base .. 'e', text_of(lease_end), id)
  if NOTES then
    put(added, base .. 'o', noted_at, id)
  end
end

-- Write what was collected about the tasks that are held.
local function write_held()
  store_all(stored)
  for key, list in pairs(removed) do
    write('zrem', key, list)
  end
  for key, list in pairs(added) do
    write('zadd', key, list)
  end
end

-- The concurrency key in a task's value.
local function key_in(value)
  local is_task, _, _, _, keys = pcall(cmsgpack.unpack_limit, value, 3, 1)
  return is_task and type(keys) == 'table' and keys[2] or nil
end
