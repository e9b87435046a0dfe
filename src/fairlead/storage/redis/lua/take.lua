-- Take these tasks of one slot, as far as they are still ready: for claims whose queues are on several servers.
--
-- KEYS[1]  the slot's base
-- ARGV[1]  now, or '' for the server's clock
-- ARGV[2]  how long leases last      ARGV[3]  grace
-- ARGV[4]  worker   ARGV[5]  token
-- ARGV     ids
--
-- Returns id, value, id, value, ... of those taken; of one that is no task's value, id and !, value.

local base, worker, token = KEYS[1], ARGV[4], ARGV[5]
local now, grace = moment(ARGV[1]), tonumber(ARGV[3])
local till = now + tonumber(ARGV[2])

local answer = {}
for argument = 6, #ARGV do
  local id = ARGV[argument]
  local value = call('get', base .. 't' .. id)
  if value then
    local is_task, at, kind, _, was = pcall(standing, base, value)
    if not is_task then
      answer[#answer + 1] = id .. '!'
      answer[#answer + 1] = value
    elseif was.code == 'q' then
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
