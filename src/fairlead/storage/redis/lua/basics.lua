-- Put in front of the scripts that change tasks, behind sizes.lua and order.lua: writing much at once, the counts of tasks
-- and what follows them.
--
-- `base` is the hash tag of a slot, such as {fl:4711}; every key is the base and a suffix (see keys.py).

local PIECE = 1000 -- arguments per call: unpack fails at some 8,000

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

-- Count so many more tasks (or fewer) of a lane and state, and let the lists of lanes and kinds follow.
local function count(base, lane, code, by, queue, descriptor, is_new)
  local counts = base .. 'n'
  local now = call('hincrby', counts, lane .. code, by)
  if now == 0 then
    call('hdel', counts, lane .. code)
  end
  if code == 'q' then
    if now == 0 then
      call('hdel', base .. 'q' .. queue, lane)
      if call('exists', base .. 'q' .. queue) == 0 then
        call('del', base .. 'b' .. queue) -- there is nothing left to ring for
      end
    elseif now == by then
      call('hset', base .. 'q' .. queue, lane, descriptor)
    end
  end
  if is_new and now == by then
    call('hsetnx', base .. 'd', string.sub(lane, 1, 8), descriptor)
  end
  return now
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
