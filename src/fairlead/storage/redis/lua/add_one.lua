-- Store one ready task that has no idempotency key, no concurrency key, no alarm and no bound, as most single submits are.
--
-- It does what add_ready.lua does for several, without the functions of listings.lua: to define those takes as long as
-- all that is done here. If the task is stored already nothing is written, and add.lua is to be called.
--
-- KEYS[1]  the slot's base
-- ARGV[1]  lane     ARGV[2]  queue    ARGV[3]  the kind's descriptor
-- ARGV[4]  ready_at ARGV[5]  id       ARGV[6]  key      ARGV[7]  value
--
-- Returns 1 when it is added | nil when add.lua is to be called.

local base, lane, queue, id = KEYS[1], ARGV[1], ARGV[2], ARGV[5]
if call('setnx', ARGV[6], ARGV[7]) == 0 then
  return false
end
call('zadd', base .. 'l' .. lane, ARGV[4], id)

local ready = call('hincrby', base .. 'n', lane .. 'q', 1)
if ready == 1 then
  call('hset', base .. 'q' .. queue, lane, ARGV[3])
  call('hsetnx', base .. 'd', string.sub(lane, 1, 8), ARGV[3])
end
if ready == 1 or call('zrange', base .. 'l' .. lane, 0, 0)[1] == id then -- the views of the queue are to know
  local entry = string.sub(lane, 9) .. struct.pack('>I7', ARGV[4]) .. id .. 'l' .. string.sub(lane, 1, 8)
  call('xadd', base .. 'z' .. queue, 'nomkstream', 'maxlen', '~', LOGGED, '*', 'h', entry, 'c', ready == 1 and 1 or 0)
end
if ready <= RINGS then -- else it rang for those that are ready already
  local doorbell = base .. 'b' .. queue
  local rings = call('rpush', doorbell, 1)
  if rings == 1 then
    call('pexpire', doorbell, RING_LIFE)
  elseif rings > RINGS then
    call('rpop', doorbell)
  end
end

-- List it in its bucket: the one with the greatest start that is not beyond it.
local tree = base .. 'iw'
local start = call('zrevrangebylex', tree, '[' .. id, '-', 'limit', 0, 1)[1]
if not start then
  start = string.rep('\0', ID)
  call('zadd', tree, 0, start)
  call('append', tree .. start, id)
  return 1
end

local bucket = tree .. start
local last, size = call('getrange', bucket, -ID, -1), nil
if last == '' or before(last, id) then -- mostly: ids come in their order
  size = call('append', bucket, id)
else
  local listed = call('get', bucket)
  local place = #listed - ID
  while place > 0 and before(id, string.sub(listed, place - ID + 1, place)) do
    place = place - ID
  end
  call('set', bucket, string.sub(listed, 1, place) .. id .. string.sub(listed, place + 1))
  size = #listed + ID
end

if size > BUCKET * ID then -- make two of it; the last bucket of all is left nearly full, as ids come at its end
  local listed = call('get', bucket)
  local is_last = #call('zrangebylex', tree, '(' .. start, '+', 'limit', 0, 1) == 0
  local left = ID * (is_last and FILL or BUCKET / 2)
  local next_start = string.sub(listed, left + 1, left + ID)
  call('set', bucket, string.sub(listed, 1, left))
  call('set', tree .. next_start, string.sub(listed, left + 1))
  call('zadd', tree, 0, next_start)
end
return 1
