-- The next ids of one tree, in their order (see listings.lua).
--
-- KEYS[1]  the tree
-- ARGV[1]  the id beyond which to begin, or ''
-- ARGV[2]  how many at most
-- ARGV[3]  1 for newest first, 0 for oldest first
--
-- Returns ids.

local tree, mark, limit, newest_first = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
local FIRST = string.rep('\0', 16)
local found = {}

local function gather(ids)
  for _, id in ipairs(ids) do
    found[#found + 1] = id
  end
end

local start
if mark ~= '' then
  start = redis.call('zrevrangebylex', tree, '[' .. mark, '-', 'limit', 0, 1)[1] or FIRST
elseif newest_first then
  start = redis.call('zrevrange', tree, 0, 0)[1]
else
  start = redis.call('zrange', tree, 0, 0)[1]
end
while start and #found < limit do
  if newest_first then
    local from = mark == '' and '+' or '(' .. mark
    gather(redis.call('zrevrangebylex', tree .. start, from, '-', 'limit', 0, limit - #found))
    start = redis.call('zrevrangebylex', tree, '(' .. start, '-', 'limit', 0, 1)[1]
  else
    local from = mark == '' and '-' or '(' .. mark
    gather(redis.call('zrangebylex', tree .. start, from, '+', 'limit', 0, limit - #found))
    start = redis.call('zrangebylex', tree, '(' .. start, '+', 'limit', 0, 1)[1]
  end
end
return found
