-- Take these tasks of one slot, as far as they are still ready: for claims whose queues are on several servers.
--
-- KEYS[1]  the slot's base
-- ARGV[1]  now      ARGV[2]  until    ARGV[3]  grace
-- ARGV[4]  worker   ARGV[5]  token
-- ARGV     ids
--
-- Returns id, value, id, value, ... of those taken.

local base, worker, token = KEYS[1], ARGV[4], ARGV[5]
local now, till, grace = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local answer = {}
for argument = 6, #ARGV do
  local id = ARGV[argument]
  local value = call('get', base .. 't' .. id)
  if value then
    local _, at, kind = cmsgpack.unpack_limit(value, 2, 1)
    local was = status_at(value, at)
    if was.code == 'q' then
      value = leased(value, at, now, till, grace, worker, token)
      call('set', base .. 't' .. id, value)
      index(base, id, kind, was, status_at(value, at))
      note(base, id)
      answer[#answer + 1] = id
      answer[#answer + 1] = value
    end
  end
end
flush(base)
return answer
