-- Let the keys of a queue come to the front that may go on by now, and see to its fair tasks: for claims whose queues are
-- on several servers.
--
-- KEYS[1]  the slot's base
-- ARGV[1]  now, or '' for the server's clock      ARGV[2]  the queue's name
-- ARGV[3]  its limits (msgpack, see limits.lua)      ARGV[4]  the limit of each key packed by itself
-- ARGV[5]  1 if tasks wait that take turns: then who may not be taken must not stand for its line, else ''
--
-- Returns the queue's name, and of what nothing may be taken now, if that is asked for: types, or '' for all of it.

local base, name, now = KEYS[1], ARGV[2], moment(ARGV[1])
local limits = limits_of(base, name, ARGV[3], ARGV[4], 1)
local answer = { name }
look(limits, now)

-- Have the first of a lane be one that may be taken, of tasks with concurrency keys.
local function close_full(lane)
  while true do
    local id = call('zrange', base .. 'f' .. lane, 0, 0)[1]
    local value = id and call('get', base .. 't' .. id)
    local key = value and key_in(value)
    local opens = key and opens_at(of_key(limits, key), now) or now
    if opens <= now then
      return
    end
    close(limits, lane, key, id, opens)
  end
end

if ARGV[5] ~= '' then
  if is_closed(limits, now) then
    answer[2] = ''
  end
  for each in pairs(limits.types) do
    if is_shut(limits, each, now) then
      answer[#answer + 1] = each
    end
  end
  local ready = call('hgetall', base .. 'q' .. name)
  for entry = 1, #ready, 2 do
    local lane, descriptor = ready[entry], ready[entry + 1]
    local oldest = is_fair(descriptor) and call('zrange', base .. 'l' .. lane, 0, 0)[1]
    if is_keyed(descriptor) then
      close_full(lane)
    elseif oldest then
      join_oldest(base, name, lane, oldest)
    end
  end
  write_lines()
end
write_news()
return answer
