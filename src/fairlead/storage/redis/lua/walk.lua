-- The next ids of one tree, in their order (see listings.lua).
--
-- KEYS[1]  the tree
-- ARGV[1]  the id beyond which to begin, or ''
-- ARGV[2]  how many at most
-- ARGV[3]  1 for newest first, 0 for oldest first
--
-- Returns ids.

local tree, mark, limit, newest_first = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
local found = {}

-- How many bytes of a bucket are of ids before the mark, or up to it.
local function bytes_before(bucket, inclusive)
  local function id_at(place)
    return string.sub(bucket, place * ID + 1, (place + 1) * ID)
  end
  return ID * first_beyond(0, #bucket / ID, id_at, mark, inclusive)
end

local function gather(bucket, first, last, step)
  for at = first, last, step do
    if #found == limit then
      return
    end
    found[#found + 1] = string.sub(bucket, at, at + ID - 1)
  end
end

local start
if mark ~= '' then
  start = call('zrevrangebylex', tree, '[' .. mark, '-', 'limit', 0, 1)[1] or string.rep('\0', ID)
elseif newest_first then
  start = call('zrevrange', tree, 0, 0)[1]
else
  start = call('zrange', tree, 0, 0)[1]
end
while start and #found < limit do
  local bucket = call('get', tree .. start) or ''
  if newest_first then
    local size = mark == '' and #bucket or bytes_before(bucket, false)
    gather(bucket, size - ID + 1, 1, -ID)
    start = call('zrevrangebylex', tree, '(' .. start, '-', 'limit', 0, 1)[1]
  else
    gather(bucket, (mark == '' and 0 or bytes_before(bucket, true)) + 1, #bucket, ID)
    start = call('zrangebylex', tree, '(' .. start, '+', 'limit', 0, 1)[1]
  end
end
return found
