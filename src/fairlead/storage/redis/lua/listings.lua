-- Put in front of the scripts that list tasks or strike them off, behind basics.lua: the listings of ids.
--
-- A tree lists ids in their order: a directory of bucket starts, and buckets. A bucket is a string of ids, in order and
-- without anything between them: no other type of Redis is as small, and a batch goes in or out by one rewrite. An id
-- belongs to the bucket with the greatest start that is not beyond it.

local FIRST = string.rep('\0', ID)

-- Put ids in order. They nearly are: tasks are submitted and end about in the order of their ids.
local function sort(ids)
  local greatest, next_greatest = 0, 0
  for at = 1, #ids do
    local id, place = ids[at], at
    local first, second = number_in('>I6I6', id)
    if first > greatest or (first == greatest and second > next_greatest) then
      greatest, next_greatest = first, second
    else
      while place > 1 and before(id, ids[place - 1]) do
        ids[place] = ids[place - 1]
        place = place - 1
      end
      ids[place] = id
    end
  end
end

-- The start of the bucket that an id belongs to.
local function start_of(tree, id)
  return call('zrevrangebylex', tree, '[' .. id, '-', 'limit', 0, 1)[1] or FIRST
end

-- The start of the bucket behind another one, or nil.
local function start_behind(tree, start)
  return call('zrangebylex', tree, '(' .. start, '+', 'limit', 0, 1)[1]
end

-- The buckets that ids belong to, each with those ids in order.
local function sorted_out(tree, ids)
  sort(ids)
  local buckets, first, number = {}, 1, #ids
  while first <= number do
    local start = start_of(tree, ids[first])
    local stop = first < number and start_behind(tree, start)
    local last = number
    if stop and not before(ids[number], stop) then
      last = first
      while before(ids[last + 1], stop) do
        last = last + 1
      end
    end
    buckets[#buckets + 1] = { start = start, ids = last - first + 1 == number and ids or { unpack(ids, first, last) } }
    first = last + 1
  end
  return buckets
end

-- A bucket's ids with others among them, which are in order.
local function merged(stored, ids)
  local size = #stored
  while size > 0 and before(ids[1], string.sub(stored, size - ID + 1, size)) do
    size = size - ID
  end
  if size < #stored then
    for first = size + 1, #stored, ID do
      ids[#ids + 1] = string.sub(stored, first, first + ID - 1)
    end
    sort(ids)
  end
  return string.sub(stored, 1, size) .. table.concat(ids)
end

-- Store an overfull bucket, which holds these ids, as several.
local function split(tree, start, ids)
  local count = #ids / ID
  local size = ID * (start_behind(tree, start) and math.ceil(count / math.ceil(2 * count / BUCKET)) or FILL)
  for first = 1, #ids, size do
    local name = first == 1 and start or string.sub(ids, first, first + ID - 1)
    call('zadd', tree, 0, name)
    call('set', tree .. name, string.sub(ids, first, first + size - 1))
  end
end

local function plant(tree, ids)
  for _, bucket in ipairs(sorted_out(tree, ids)) do
    local key, added = tree .. bucket.start, bucket.ids
    local last, size = call('getrange', key, -ID, -1), nil
    if last == '' or before(last, added[1]) then
      size = call('append', key, table.concat(added))
    else
      local whole = merged(call('get', key), added)
      call('set', key, whole)
      size = #whole
    end
    if size > BUCKET * ID then
      split(tree, bucket.start, call('get', key))
    elseif last == '' then
      call('zadd', tree, 0, bucket.start)
    end
  end
end

-- Where in a bucket an id begins, or nil.
local function place_of(stored, id)
  local place = string.find(stored, id, 1, true)
  while place and place % ID ~= 1 do
    place = string.find(stored, id, place + 1, true)
  end
  return place
end

-- A bucket without some of its ids.
local function without(stored, ids)
  -- Tasks mostly end in the order of their ids, and then it is one piece.
  local piece = table.concat(ids)
  local place = place_of(stored, piece)
  if place then
    return string.sub(stored, 1, place - 1) .. string.sub(stored, place + #piece)
  end
  local places = {}
  for _, id in ipairs(ids) do
    places[#places + 1] = place_of(stored, id)
  end
  local pieces, from = {}, 1
  for at, found in ipairs(places) do
    pieces[at] = string.sub(stored, from, found - 1)
    from = found + ID
  end
  return table.concat(pieces) .. string.sub(stored, from)
end

local function uproot(tree, ids)
  for _, bucket in ipairs(sorted_out(tree, ids)) do
    local key = tree .. bucket.start
    local stored = call('get', key) or ''
    local left = without(stored, bucket.ids)
    if left == '' then
      call('del', key)
      call('zrem', tree, bucket.start)
    elseif #left < #stored then
      call('set', key, left)
    end
  end
end
