-- Renew leases and store progress, in one slot.
--
-- KEYS[1]  the slot's base
-- ARGV[1]  now, or '' for the server's clock      ARGV[2]  how long leases last      ARGV[3]  grace
-- ARGV     per beat: id, token, progress (msgpack) or ''
--
-- Returns per beat: 'h' held | 'c' held, and cancel was asked | 'l' lost | {'d', value} when that is no task's.

local base, now, lease, grace = KEYS[1], moment(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local function with_progress(value, rest, progress)
  local start = result_end(value, rest)
  local after = cmsgpack.unpack_one(value, start)
  return string.sub(value, rest + 1, start) .. progress .. string.sub(value, after + 1)
end

-- A value once its lease is renewed, when that ends, and whether cancel was asked; nil if the lease is another. An error
-- says that the value is no task's.
local function renewed(value, token, progress)
  local _, at = cmsgpack.unpack_one(value, 1)
  local status = status_at(value, at)
  if not status.lease or status.lease[1] ~= token then
    return nil
  end
  local _, _, cancel_asked = cmsgpack.unpack_limit(value, 2, status.rest)
  status.started_at = math.min(status.started_at or 0, now) -- after the clock went back it may lie ahead
  local lease_end = math.min(now + lease, status.started_at + status.timeout + grace)
  status.beats, status.lease[3], status.alarm = status.beats + 1, lease_end, lease_end
  local tail = progress ~= '' and with_progress(value, status.rest, progress)
  return rewritten(value, at, status, tail), lease_end, cancel_asked
end

local function extend(id, token, progress)
  local key = base .. 't' .. id
  local value = call('get', key)
  if not value then
    return 'l'
  end
  local is_task, after, lease_end, cancel_asked = pcall(renewed, value, token, progress)
  if not is_task then
    return { 'd', value }
  elseif not after then
    return 'l'
  end
  call('set', key, after)
  put(adds, base .. 'e', lease_end, id)
  return cancel_asked == true and 'c' or 'h'
end

local pulses = {}
for at = 4, #ARGV, 3 do
  pulses[#pulses + 1] = extend(ARGV[at], ARGV[at + 1], ARGV[at + 2])
end
flush(base)
return pulses
