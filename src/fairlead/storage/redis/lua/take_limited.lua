-- Take these tasks of one slot, as far as they are still ready and limits leave room: take.lua under limits.
--
-- KEYS[1]  the slot's base
-- ARGV[1]  now, or '' for the server's clock
-- ARGV[2]  how long leases last      ARGV[3]  grace
-- ARGV[4]  worker   ARGV[5]  token
-- ARGV[6]  the line in which a task is served by its turn, the digit of a priority and a queue, or ''
-- ARGV[7]  and ARGV[8]  what is reached there then, and the turn of others (see fair.lua)
-- ARGV[9]  how many queues follow
-- ARGV     per queue: its name, its limits (msgpack, see limits.lua), the limit of each key packed by itself
-- ARGV     ids, best first
--
-- Returns {what take.lua returns}, {descriptors of kinds that are shut for now}.

local base, worker, token = KEYS[1], ARGV[4], ARGV[5]
local now, grace = moment(ARGV[1]), tonumber(ARGV[3])
local till = now + tonumber(ARGV[2])

local queues, argument = {}, 10
for _ = 1, ARGV[9] do
  queues[ARGV[argument]] = limits_of(base, ARGV[argument], ARGV[argument + 1], ARGV[argument + 2], #ARGV)
  argument = argument + 3
end

local taken, shut = {}, {}

local function take(id, value)
  local is_task, at, kind, keys, was = pcall(standing, base, value)
  if not is_task then
    taken[#taken + 1] = id .. '!'
    taken[#taken + 1] = value
    return
  end
  local key = type(keys) == 'table' and keys[2] or nil
  local descriptor = stored_kind(base, kind).descriptor
  if was.code ~= 'q' then
    if is_fair(descriptor) then -- an earlier version has left it there
      put(removals, base .. 'x' .. lane_of(kind, was.priority), id)
    end
    return
  end
  local described = cmsgpack.unpack(descriptor)
  local limits = queues[described[1]]
  if is_shut(limits, described[2], now) then
    shut[#shut + 1] = descriptor
    return
  end
  local opens = key and opens_at(of_key(limits, key), now) or now
  if opens > now then
    close(limits, kind .. was.priority, key, id, opens)
    return
  end
  count_start(limits, described[2], key, now)
  value = leased(value, at, now, till, grace, worker, token)
  local status = status_at(value, at)
  call('set', base .. 't' .. id, value)
  index(base, id, kind, was, status)
  note(base, id)
  if key then
    move(base, limits.name, kind, key, id, was, status)
  elseif is_fair(descriptor) then
    put(removals, base .. 'x' .. lane_of(kind, was.priority), id)
    leave(fair_line(base, limits.name, was.priority), (fair_in(value)))
  end
  if ARGV[6] ~= '' then
    local line = fair_line(base, string.sub(ARGV[6], 2), string.sub(ARGV[6], 1, 1))
    line.reached, line.others = math.max(line.reached, ARGV[7]), math.max(line.others, ARGV[8])
    line.changed = true
  end
  taken[#taken + 1] = id
  taken[#taken + 1] = value
end

for at = argument, #ARGV do
  local value = call('get', base .. 't' .. ARGV[at])
  if value then
    take(ARGV[at], value)
  end
end
write_lines()
flush(base)
for _, limits in pairs(queues) do
  keep_dues(limits, now)
end
return { taken, shut }
