-- Places in a sorted set whose members of one score are in the order of their ids; it comes behind order.lua.

-- The first of the places from `low` on, before `high`, whose id is beyond a mark; without `inclusive`, at it or beyond.
local function first_beyond(low, high, id_at, mark, inclusive)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local id = id_at(middle)
    if before(mark, id) or (id == mark and not inclusive) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

-- How many members of a sorted set are at or before a place; without `inclusive`, how many are before it. Those of one
-- score are many when tasks came in bulk: the place among them is found by halving, not by walking.
local function count_before(key, score, mark, inclusive)
  local low = redis.call('zcount', key, '-inf', '(' .. score)
  local high = redis.call('zcount', key, '-inf', score)
  return first_beyond(low, high, function(at) return redis.call('zrange', key, at, at)[1] end, mark, inclusive)
end
