-- Put in front of the scripts that change tasks, behind sizes.lua and order.lua: writing much at once, the counts of tasks
-- and what follows them.
--
-- `base` is the hash tag of a slot, such as {fl:4711}; every key is the base and a suffix (see keys.py).

local PIECE = 1000 -- arguments per call: unpack fails at some 8,000

local texts = {}

-- A number as Redis takes it. Tasks of one call mostly have the same alarm, and writing a number out is slow.
local function text_of(number)
  local text = texts[number]
  if not text then
    text = string.format('%.0f', number)
    texts[number] = text
  end
  return text
end

local function put(lists, key, first, second)
  local list = lists[key]
  if not list then
    lists[key] = { first, second }
  else
    local size = #list
    list[size + 1] = first
    list[size + 2] = second
  end
end

local home

-- The base of a task: its id carries its slot.
local function base_of(id)
  home = home or string.match(KEYS[1], '^(.*:)%d+}$')
  return home .. struct.unpack('>I2', id, 9) % 16384 .. '}'
end

local function write(command, key, list)
  for first = 1, #list, PIECE do
    call(command, key, unpack(list, first, math.min(first + PIECE - 1, #list)))
  end
end

-- Set keys: key, value, key, value, ...
local function store_all(list)
  for first = 1, #list, PIECE do
    call('mset', unpack(list, first, math.min(first + PIECE - 1, #list)))
  end
end

-- Remove keys.
local function remove_all(keys)
  for first = 1, #keys, PIECE do
    call('del', unpack(keys, first, math.min(first + PIECE - 1, #keys)))
  end
end

-- What changed about the lanes of queues, for their views (see views.lua): by the key of a queue's log.
local news = {}

-- An entry of a view: a lane by its head, so that entries of one priority are in the order of their heads. `list` is
-- where the head was found: 'l' or, of tasks with concurrency keys, 'f'.
local function entry_of(lane, list, ready_at, id)
  return string.sub(lane, 9) .. struct.pack('>I7', ready_at) .. id .. list .. string.sub(lane, 1, 8)
end

local function is_keyed(descriptor)
  return string.byte(descriptor) == 0x94 -- it has a fourth field
end

local function is_fair(descriptor)
  return string.byte(descriptor) == 0x95 -- it has a fifth field
end

local logged = {}

-- Whether a queue has a log: while it has views.
local function is_logged(base, queue)
  local log = base .. 'z' .. queue
  if logged[log] == nil then
    logged[log] = call('exists', log) == 1
  end
  return logged[log]
end

-- Have it known if the head of a lane is one of those that just came to it: ready_at, id, ... from one place of a list to
-- another.
local function tell_head(base, queue, lane, list, first, last)
  if not is_logged(base, queue) then
    return
  end
  local head = call('zrange', base .. 'l' .. lane, 0, 0, 'withscores')
  for at = first + 1, last, 2 do
    if list[at] == head[1] then
      put(news, base .. 'z' .. queue, 'h', entry_of(lane, 'l', head[2], head[1]))
      break
    end
  end
end

-- Only where a queue has a log.
local function write_news()
  for log, list in pairs(news) do
    for first = 1, #list, PIECE do
      call('xadd', log, 'nomkstream', 'maxlen', '~', LOGGED, '*', unpack(list, first, math.min(first + PIECE - 1, #list)))
    end
  end
  news = {}
end

-- Let the list of a queue's ready lanes follow: `come` is lane, descriptor, ..., and `gone` is lanes.
local function list_lanes(base, queue, come, gone)
  local ready, by = base .. 'q' .. queue, 0
  for first = 1, #come, PIECE do
    by = by + call('hset', ready, unpack(come, first, math.min(first + PIECE - 1, #come)))
  end
  for first = 1, #gone, PIECE do
    by = by - call('hdel', ready, unpack(gone, first, math.min(first + PIECE - 1, #gone)))
  end
  if by ~= 0 then
    put(news, base .. 'z' .. queue, 'c', by)
  end
  if #gone > 0 and call('exists', ready) == 0 then
    -- There is nothing left to ring for, and an earlier version may have left what it does not know.
    call('del', base .. 'b' .. queue, base .. 'z' .. queue, base .. 'u0' .. queue, base .. 'u1' .. queue,
      base .. 'u2' .. queue, base .. 'u3' .. queue)
  end
end

-- Add to these counts, and return them as they are then: one by one, or if they are many all at once.
local function add_up(counts, fields, counted)
  local numbers, none, size = {}, {}, #fields
  if size <= 4 then
    for at, field in ipairs(fields) do
      local number = call('hincrby', counts, field, counted[field])
      numbers[at] = number
      if number == 0 then
        none[#none + 1] = field
      end
    end
  else
    local stored = {}
    for first = 1, size, PIECE do
      for place, stood in ipairs(call('hmget', counts, unpack(fields, first, math.min(first + PIECE - 1, size)))) do
        local at = first + place - 1
        local field = fields[at]
        local number = (stood or 0) + counted[field]
        numbers[at] = number
        if number == 0 then
          none[#none + 1] = field
        else
          local last = #stored
          stored[last + 1], stored[last + 2] = field, number
        end
      end
    end
    write('hset', counts, stored)
  end
  write('hdel', counts, none)
  return numbers
end

-- Count more tasks, or fewer, of lanes and states: `counted` is how many by <lane><code>, and `described` tells the queue
-- and the descriptor of a kind. The lists of lanes and kinds follow. Returns the numbers as they are then.
local function count(base, counted, described, is_new)
  local fields, numbers, come, gone = {}, {}, {}, {}
  for field, by in pairs(counted) do
    if by ~= 0 then
      fields[#fields + 1] = field
    end
  end
  for at, number in ipairs(add_up(base .. 'n', fields, counted)) do
    local field = fields[at]
    numbers[field] = number
    if number == 0 or number == counted[field] then
      local lane, queue, descriptor = string.sub(field, 1, 9), described(string.sub(field, 1, 8))
      if string.byte(field, 10) == 113 then -- 'q'
        come[queue] = come[queue] or {}
        gone[queue] = gone[queue] or {}
        if number == 0 then
          table.insert(gone[queue], lane)
          if descriptor and is_fair(descriptor) then
            call('del', base .. 'x' .. lane) -- what an earlier version has left there
          end
        else
          put(come, queue, lane, descriptor)
        end
      end
      if is_new then
        call('hsetnx', base .. 'd', string.sub(field, 1, 8), descriptor)
      end
    end
  end
  for queue, lanes in pairs(come) do
    list_lanes(base, queue, lanes, gone[queue])
  end
  return numbers
end

local function ring(doorbell, times)
  local rings = { 1 }
  for at = 2, math.min(times, RINGS) do
    rings[at] = 1
  end
  local kept = call('rpush', doorbell, unpack(rings))
  if kept == #rings then
    call('pexpire', doorbell, RING_LIFE)
  elseif kept > RINGS then
    call('ltrim', doorbell, 0, RINGS - 1)
  end
end
