-- Store one ready task that has no idempotency key, no alarm and no bound, in a slot that has tasks: the common case of
-- add.lua, in a straight line. Where it is not as simple as that nothing is written, and add.lua is to be called.
--
-- KEYS[1]  the slot's base
-- ARGV[1]  id       ARGV[2]  lane     ARGV[3]  ready_at     ARGV[4]  value
-- ARGV[5]  queue    ARGV[6]  the kind's descriptor
--
-- Returns 1 added | 0 known | nil when add.lua is to be called.

local call, base, id = redis.call, KEYS[1], ARGV[1]
local tree = base .. 'iw'
local start = call('zrevrange', tree, 0, 0)[1]
local bucket = tree .. (start or '')
local last = call('getrange', bucket, -16, -1)
-- No bucket, an id that came late, or a bucket that is full.
if last == '' or struct.unpack('>I6', id) <= struct.unpack('>I6', last) or call('strlen', bucket) >= 1024 then
  return false
end
if not call('set', base .. 't' .. id, ARGV[4], 'nx') then
  return 0
end
call('zadd', base .. 'l' .. ARGV[2], ARGV[3], id)
call('append', bucket, id)
if call('hincrby', base .. 'n', ARGV[2] .. 'q', 1) == 1 then
  call('hset', base .. 'q' .. ARGV[5], ARGV[2], ARGV[6])
  call('hsetnx', base .. 'd', string.sub(ARGV[2], 1, 8), ARGV[6])
end
local doorbell = base .. 'b' .. ARGV[5]
if call('llen', doorbell) < 64 then
  call('rpush', doorbell, 1)
  call('pexpire', doorbell, 60000)
end
return 1
