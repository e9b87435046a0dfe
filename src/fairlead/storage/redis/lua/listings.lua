-- Put in front of the scripts that add, remove or move tasks: the listings of ids, and the counts that follow.
--
-- A tree lists ids in their order: a directory of bucket starts, and buckets small enough to be packed tightly by
-- Redis. That takes a quarter of the memory of one large sorted set. An id belongs to the bucket with the greatest
-- start that is not beyond it.
--
-- `base` is the hash tag of a slot, such as {fl:4711}; every key is the base and a suffix (see keys.py).

local call = redis.call
local PIECE = 1000 -- arguments per call: unpack fails at some 8,000
local BUCKET = 64 -- ids per bucket: Redis packs up to 128 tightly, but must walk through them
local FILL = 56 -- ids left in a bucket that ids are appended to, so that late ones still find room
local FIRST = string.rep('\0', 16)
local RINGS = 64 -- rings kept in a doorbell
local RING_LIFE = 60000 -- milliseconds

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

local home = string.match(KEYS[1], '^(.*:)%d+}$')

-- The base of a task: its id carries its slot.
local function base_of(id)
  return home .. struct.unpack('>I2', id, 9) % 16384 .. '}'
end

local function write(command, key, list)
  for first = 1, #list, PIECE do
    call(command, key, unpack(list, first, math.min(first + PIECE - 1, #list)))
  end
end

-- Whether one id sorts before another. Lua's own < follows the server's locale.
local function before(one, other)
  local left, right = struct.unpack('>I6', one), struct.unpack('>I6', other)
  if left ~= right then
    return left < right
  end
  for at = 7, 16 do
    left, right = string.byte(one, at), string.byte(other, at)
    if left ~= right then
      return left < right
    end
  end
  return false
end

local function bucket_of(tree, id, last)
  if last and not before(id, last) then
    return last
  end
  return call('zrevrangebylex', tree, '[' .. id, '-', 'limit', 0, 1)[1] or FIRST
end

-- Cut an overfull bucket into several. It is written anew, because Redis never packs a large set tightly again.
local function split(tree, start, is_last)
  local ids = call('zrange', tree .. start, 0, -1)
  local size = is_last and FILL or math.ceil(#ids / math.ceil(2 * #ids / BUCKET))
  call('del', tree .. start)
  for first = 1, #ids, size do
    local piece = {}
    for at = first, math.min(first + size - 1, #ids) do
      piece[#piece + 1] = '0'
      piece[#piece + 1] = ids[at]
    end
    local name = first == 1 and start or piece[2]
    call('zadd', tree, 0, name)
    call('zadd', tree .. name, unpack(piece))
  end
end

local function tend(tree, start, last)
  local size = call('zcard', tree .. start)
  if size == 0 then
    call('zrem', tree, start)
  elseif size > BUCKET then
    split(tree, start, start == last or not last)
  end
end

local function plant(tree, ids)
  local last = call('zrevrange', tree, 0, 0)[1]
  local added = {}
  for at = 1, #ids do
    put(added, bucket_of(tree, ids[at], last), '0', ids[at])
  end
  for start, list in pairs(added) do
    write('zadd', tree .. start, list)
    if start == FIRST then
      call('zadd', tree, 0, start)
    end
    -- Looking at every eighth lone id is enough: a bucket may grow to twice its size before that costs anything.
    if #list > 2 or string.byte(list[2], 16) % 8 == 0 then
      tend(tree, start, last)
    end
  end
end

local function uproot(tree, ids)
  local last = call('zrevrange', tree, 0, 0)[1]
  local removed = {}
  for at = 1, #ids do
    put(removed, bucket_of(tree, ids[at], last), ids[at])
  end
  for start, list in pairs(removed) do
    write('zrem', tree .. start, list)
    tend(tree, start, last)
  end
end

-- Whether no task of a kind is left.
local function is_gone(counts, kind)
  local fields = {}
  for priority = 0, 3 do
    for code in string.gmatch('sqecfdx', '.') do
      fields[#fields + 1] = kind .. priority .. code
    end
  end
  for _, number in ipairs(call('hmget', counts, unpack(fields))) do
    if number then
      return false
    end
  end
  return true
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
  local room = math.min(times, RINGS - call('llen', doorbell))
  if room == 1 then
    call('rpush', doorbell, 1)
  elseif room > 1 then
    local list = {}
    for at = 1, room do
      list[at] = 1
    end
    call('rpush', doorbell, unpack(list))
  end
  if room > 0 then
    call('pexpire', doorbell, RING_LIFE)
  end
end
