-- Store how tasks ended, as the holders of their leases say, in one slot: the common case of apply.lua, in a straight
-- line. Where it is not as simple as that nothing is written, and apply.lua is to be called: a task is not there or not
-- held, it has a concurrency key, or some task of this slot is waited for.
--
-- KEYS[1]  the slot's base
-- ARGV     per change: id, guard, status, as apply.lua takes them; of each task one, each under a lease, each ending it
--
-- Returns 1 when all are applied | nil when apply.lua is to be called.

local base = KEYS[1]
local ids, keys, number = {}, {}, 0
for at = 1, #ARGV, 3 do
  number = number + 1
  ids[number] = ARGV[at]
  keys[number] = base .. 't' .. ARGV[at]
end
local values = call('mget', unpack(keys))
if call('exists', base .. 'v') == 1 then
  return false
end

local stored, alarms = {}, {}
for at = 1, number do
  local value = values[at]
  if not value then
    return false
  end
  local guard, bytes = ARGV[3 * at - 1], ARGV[3 * at]
  local _, start, kind, key = cmsgpack.unpack_limit(value, 3, 1)
  local _, state, priority, _, _, version, _, _, _, _, _, lease = cmsgpack.unpack_limit(value, 11, start + 3)
  if state ~= 'executing' or version ~= number_in('>I4', guard, 2) or lease[1] ~= string.sub(guard, 6)
      or type(key) == 'table' then
    return false
  end
  local _, outcome, priority_then, _, _, _, _, _, _, _, alarm = cmsgpack.unpack_limit(bytes, 10, 3)
  local code = CODE[outcome]
  count_one(lane_of(kind, priority), 'e', -1)
  count_one(lane_of(kind, priority_then), code, 1)
  put(planted, base .. 'i' .. code, ids[at])
  if alarm then
    alarms[#alarms + 1] = text_of(alarm)
    alarms[#alarms + 1] = ids[at]
  end
  stored[2 * at - 1] = keys[at]
  stored[2 * at] = string.sub(value, 1, start) .. bytes
  note(base, ids[at])
end
store_all(stored)
removals[base .. 'e'] = ids
adds[base .. 'a'] = alarms
uprooted[base .. 'iw'] = ids
flush(base)
return 1
