-- Put in front of the scripts that change tasks one by one, behind listings.lua and tasks.lua: how the indexes follow a
-- task's status.
--
-- Such a script collects what is to change in the indexes, and `flush` writes it at the end. Nothing written can fail
-- after the first write: the keys are ours alone and memory is checked before.

local TREE = { s = 's', q = 'w', e = 'w', c = 'c', f = 'f', d = 'd', x = 'x' }

local adds, removals, planted, uprooted, counted, rings = {}, {}, {}, {}, {}, {}
local died = {} -- kinds of which tasks were removed
local reached = {} -- lanes that tasks have come to

-- Note that a task has changed, or with `how` '-' that it was removed, for the journal to learn of.
local function note(base, id, how)
  if NOTES then
    put(adds, base .. 'o', noted_at, id .. (how or ''))
  end
end

local lanes_of_kinds = {}

-- The lane of a kind and priority.
local function lane_of(kind, priority)
  local lanes = lanes_of_kinds[kind]
  if not lanes then
    lanes = { [0] = kind .. '0', kind .. '1', kind .. '2', kind .. '3' }
    lanes_of_kinds[kind] = lanes
  end
  return lanes[priority]
end

local function count_one(lane, code, by)
  local field = lane .. code
  counted[field] = (counted[field] or 0) + by
end

-- Let the indexes follow a task from one status to another, of which either may be nil.
local function index(base, id, kind, was, status)
  local from, to = was and was.code, status and status.code
  local from_lane, to_lane = was and lane_of(kind, was.priority), status and lane_of(kind, status.priority)
  if from == 'q' and not (to == 'q' and from_lane == to_lane) then
    put(removals, base .. 'l' .. from_lane, id)
  end
  if to == 'q' then
    put(adds, base .. 'l' .. to_lane, status.ready_at, id)
    reached[to_lane] = true
  end
  local from_clock, to_clock = was and was.clock, status and status.clock
  if from_clock and from_clock ~= to_clock then
    put(removals, base .. from_clock, id)
  end
  if to_clock then
    put(adds, base .. to_clock, status.alarm and text_of(status.alarm) or 'inf', id)
  end
  local from_tree, to_tree = from and TREE[from], to and TREE[to]
  if from_tree ~= to_tree then
    if from_tree then
      put(uprooted, base .. 'i' .. from_tree, id)
    end
    if to_tree then
      put(planted, base .. 'i' .. to_tree, id)
    end
  end
  if from then
    count_one(from_lane, from, -1)
  end
  if to then
    count_one(to_lane, to, 1)
  end
end

-- Whether no task of a kind is left.
local function is_gone(counts, kind)
  local fields = {}
  for priority = 0, 3 do
    for code in string.gmatch('sqecfdx', '.') do
      fields[#fields + 1] = kind .. priority .. code
    end
  end
  for _, number in ipairs(call('hmget', counts, unpack(fields))) do
    if number then
      return false
    end
  end
  return true
end

local known_kinds = {}

-- A kind that has tasks: its queue and its descriptor, a msgpack array [queue, type, capabilities].
local function stored_kind(base, kind)
  local found = known_kinds[base .. kind]
  if not found then
    local descriptor = call('hget', base .. 'd', kind)
    found = { descriptor = descriptor, queue = cmsgpack.unpack(descriptor)[1] }
    known_kinds[base .. kind] = found
  end
  return found
end

-- Have the descriptors of these kinds at hand, as far as they are there.
local function read_kinds(base, kinds)
  local missing = {}
  for kind in pairs(kinds) do
    if not known_kinds[base .. kind] then
      missing[#missing + 1] = kind
    end
  end
  for at, descriptor in ipairs(#missing > 0 and call('hmget', base .. 'd', unpack(missing)) or {}) do
    if descriptor then
      known_kinds[base .. missing[at]] = { descriptor = descriptor, queue = cmsgpack.unpack(descriptor)[1] }
    end
  end
end

-- Where the status of a stored value begins, its kind, its keys, and how it stands. An error says that it is no task's.
local function standing(base, value)
  local _, at, kind, keys = cmsgpack.unpack_limit(value, 3, 1)
  local status = status_at(value, at)
  stored_kind(base, kind)
  return at, kind, keys, status
end

-- Write what was collected about tasks of one slot.
local function flush(base)
  for key, list in pairs(removals) do
    write('zrem', key, list)
  end
  for key, list in pairs(adds) do
    write('zadd', key, list)
  end
  for tree, ids in pairs(uprooted) do
    uproot(tree, ids)
  end
  for tree, ids in pairs(planted) do
    plant(tree, ids)
  end
  count(base, counted, function(kind)
    local stored = stored_kind(base, kind)
    return stored.queue, stored.descriptor
  end)
  for lane in pairs(reached) do
    local kind = stored_kind(base, string.sub(lane, 1, 8))
    if not is_keyed(kind.descriptor) then
      local list = adds[base .. 'l' .. lane]
      tell_head(base, kind.queue, lane, list, 1, #list)
    end
  end
  for kind in pairs(died) do
    if is_gone(base .. 'n', kind) then
      call('hdel', base .. 'd', kind)
    end
  end
  for doorbell, times in pairs(rings) do
    ring(doorbell, times)
  end
  write_news()
end
