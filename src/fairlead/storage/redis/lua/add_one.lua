-- Store one ready task, as add_ready.lua does. Most submits are that, and it stands in front of listings.lua, which costs
-- as much as all of this: ids come in their order, so that mostly the last bucket takes one more, or there is none, and
-- that is all. Otherwise plant_one.lua, behind both, sees to the listing.
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
if ready <= RINGS then -- else it rang for those that are ready already
  local doorbell = base .. 'b' .. queue
  local rings = call('rpush', doorbell, 1)
  if rings == 1 then
    call('pexpire', doorbell, RING_LIFE)
  elseif rings > RINGS then
    call('rpop', doorbell)
  end
end

local tree = base .. 'iw'
local start = call('zrevrangebylex', tree, '[' .. id, '-', 'limit', 0, 1)[1]
if not start then
  start = string.rep('\0', ID)
  call('zadd', tree, 0, start)
  call('append', tree .. start, id)
  return 1
end
local listed, last = false, call('getrange', tree .. start, -ID, -1)
if last ~= '' then
  local moment, serial = struct.unpack('>I6I2', last)
  local own_moment, own_serial = struct.unpack('>I6I2', id)
  if moment < own_moment or (moment == own_moment and serial < own_serial) then
    if call('append', tree .. start, id) <= BUCKET * ID then
      return 1
    end
    listed = true
  end
end
