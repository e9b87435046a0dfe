-- Store how tasks ended, as the holders of their leases say, in one slot: the common case of apply.lua, in a straight
-- line. Where it is not as simple as that nothing is written, and apply.lua is to be called: a task is not there or not
-- held, it has a concurrency key, or some task of this slot is waited for.
--
-- KEYS[1]  the slot's base
-- ARGV     per change: id, guard, status, as apply.lua takes them; of each task one, each under a lease, each ending it
--
-- Returns 1 when all are applied | nil when apply.lua is to be called.

local base = KEYS[1]
local sub, fields = string.sub, cmsgpack.unpack_limit
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

local stored, alarms, left, groups = {}, {}, {}, {}

-- Take down what is to be written; false if it is not as simple as that. An error says that a value is no task's: that is
-- no simple case either, and nothing is written yet.
local function take_down()
  for at = 1, number do
    local id, value, guard, bytes = ids[at], values[at], ARGV[3 * at - 1], ARGV[3 * at]
    if not value then
      return false
    end
    local _, start, kind, key = fields(value, 3, 1)
    local lease_at, state, priority, _, _, version = fields(value, 10, start + 3)
    -- A lease is an array with its token in front. Read past the array's head, it takes no table.
    local _, token = fields(value, 1, lease_at + 1)
    if state ~= 'executing' or version ~= number_in('>I4', guard, 2) or token ~= sub(guard, 6)
        or type(key) == 'table' then
      return false
    end
    local _, outcome, priority_then, _, _, _, _, _, _, _, alarm = fields(bytes, 10, 3)
    local lane, lane_then = lane_of(kind, priority), lane_of(kind, priority_then)
    left[lane] = (left[lane] or 0) + 1
    local group = groups[outcome]
    if not group then
      group = { ids = {}, number = 0, lanes = {} }
      groups[outcome] = group
    end
    group.number = group.number + 1
    group.ids[group.number] = id
    group.lanes[lane_then] = (group.lanes[lane_then] or 0) + 1
    if alarm then
      local last = #alarms
      alarms[last + 1], alarms[last + 2] = text_of(alarm), id
    end
    stored[2 * at - 1], stored[2 * at] = keys[at], sub(value, 1, start) .. bytes
    note(base, id)
  end
  read_kinds(base, lanes_of_kinds)
  for kind in pairs(lanes_of_kinds) do
    stored_kind(base, kind)
  end
  return true
end

local is_sound, is_simple = pcall(take_down)
if not is_sound or not is_simple then
  return false
end
store_all(stored)
removals[base .. 'e'] = ids
adds[base .. 'a'] = alarms
uprooted[base .. 'iw'] = ids
for lane, by in pairs(left) do
  counted[lane .. 'e'] = -by
end
for outcome, group in pairs(groups) do
  local code = CODE[outcome]
  planted[base .. 'i' .. code] = group.ids
  for lane, by in pairs(group.lanes) do
    counted[lane .. code] = by
  end
end
flush(base)
return 1
