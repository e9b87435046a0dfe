-- Renew leases and store progress, in one slot.
--
-- KEYS[1]  the slot's base
-- ARGV[1]  until    ARGV[2]  grace
-- ARGV     per beat: id, token, progress (msgpack) or ''
--
-- Returns per beat: 'h' held | 'c' held, and cancel was asked | 'l' lost.

local base, till, grace = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])

local function with_progress(value, rest, progress)
  local start = result_end(value, rest)
  local after = cmsgpack.unpack_one(value, start)
  return string.sub(value, rest + 1, start) .. progress .. string.sub(value, after + 1)
end

local function extend(id, token, progress)
  local key = base .. 't' .. id
  local value = call('get', key)
  if not value then
    return 'l'
  end
  local _, at = cmsgpack.unpack_one(value, 1)
  local status = status_at(value, at)
  if not status.lease or status.lease[1] ~= token then
    return 'l'
  end
  local _, _, cancel_asked = cmsgpack.unpack_limit(value, 2, status.rest)
  local limit = (status.started_at or 0) + status.timeout + grace
  local lease_end = math.max(status.lease[3], math.min(till, limit))
  status.beats, status.lease[3], status.alarm = status.beats + 1, lease_end, lease_end
  call('set', key, rewritten(value, at, status, progress ~= '' and with_progress(value, status.rest, progress)))
  put(adds, base .. 'e', lease_end, id)
  return cancel_asked and 'c' or 'h'
end

local pulses = {}
for at = 3, #ARGV, 3 do
  pulses[#pulses + 1] = extend(ARGV[at], ARGV[at + 1], ARGV[at + 2])
end
flush(base)
return pulses
