-- Put in front of the scripts that change tasks, behind listings.lua: how a task's value is read, and how the indexes
-- follow its status. NOTES says whether what changes is noted in the outbox.
--
-- A task's value is a msgpack array: [where the status starts, kind, idempotency key or nil, spec, status]. Only the
-- first twelve fields of the status are ever read here; parameters, results and failures are bytes that pass by.
--
-- Every script collects what is to change in the indexes, and `flush` writes it at the end. Nothing written can fail
-- after the first write: the keys are ours alone and memory is checked before.

local CODE = {
  scheduled = 's', queued = 'q', executing = 'e', completed = 'c', failed = 'f', dead_letter = 'd', cancelled = 'x',
}
local TREE = { s = 's', q = 'w', e = 'w', c = 'c', f = 'f', d = 'd', x = 'x' }

local noted_at -- milliseconds, by the server's clock; a later moment hides a note until then
if NOTES then
  local clock = call('time')
  noted_at = clock[1] * 1000 + math.floor(clock[2] / 1000)
end

local adds, removals, planted, uprooted, counted, rings = {}, {}, {}, {}, {}, {}
local died = {} -- kinds of which tasks were removed

-- Note that a task has changed, or with `how` '-' that it was removed, for the journal to learn of.
local function note(base, id, how)
  if NOTES then
    put(adds, base .. 'o', noted_at, id .. (how or ''))
  end
end

local texts = {}

-- A number as Redis takes it. Tasks of one call mostly have the same alarm, and writing a number out is slow.
local function text_of(number)
  local text = texts[number]
  if not text then
    text = string.format('%.0f', number)
    texts[number] = text
  end
  return text
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

-- What the indexes need of a status that begins at this offset (counted from 0) of a string.
local function status_at(bytes, at)
  local rest, state, priority, ready_at, timeout, version, beats, attempts, retries, crashes, alarm, lease, started_at =
    cmsgpack.unpack_limit(bytes, 12, at + 3)
  local code = CODE[state]
  return {
    state = state, priority = priority, ready_at = ready_at, timeout = timeout, version = version, beats = beats,
    attempts = attempts, retries = retries, crashes = crashes, alarm = alarm, lease = lease, started_at = started_at,
    rest = rest, code = code, clock = ((lease or code == 'e') and 'e') or (alarm and 'a') or nil,
  }
end

-- Where in a string the result of a status ends whose first twelve fields end at `rest`. The result is skipped by hand:
-- cmsgpack does not know msgpack's bytes.
local function result_end(bytes, rest)
  local at = cmsgpack.unpack_limit(bytes, 4, rest) -- ended_at, cancel_asked, reason, failure
  local mark, one, two, three, four = string.byte(bytes, at + 1, at + 5)
  if mark == 0xc4 then
    return at + 2 + one
  elseif mark == 0xc5 then
    return at + 3 + one * 256 + two
  elseif mark == 0xc6 then
    return at + 5 + ((one * 256 + two) * 256 + three) * 256 + four
  end
  return at + 1
end

-- A task's value with the first twelve fields of its status, which begins at this offset, as they are now; without
-- `tail`, what is behind them stays as it is.
local function rewritten(value, at, status, tail)
  -- The start of the array, of three bytes, tells how many fields it has.
  return string.sub(value, 1, at + 3) .. cmsgpack.pack(status.state, status.priority, status.ready_at, status.timeout,
    status.version, status.beats, status.attempts, status.retries, status.crashes, status.alarm, status.lease,
    status.started_at) .. (tail or string.sub(value, status.rest + 1))
end

local EXECUTING = cmsgpack.pack('executing')
local leases = {}

-- The value of a task, whose status begins at this offset, once it is claimed; when its lease ends; the alarm it had.
local function leased(value, at, now, till, grace, worker, token)
  local rest, _, priority, ready_at, timeout, version, beats, attempts, retries, crashes, alarm =
    cmsgpack.unpack_limit(value, 12, at + 3)
  local lease_end = math.min(till, now + timeout + grace)
  local lease = leases[lease_end]
  if not lease then
    lease = cmsgpack.pack(lease_end, { token, worker, lease_end }, now) -- alarm, lease, started_at
    leases[lease_end] = lease
  end
  return string.sub(value, 1, at + 3) .. EXECUTING .. cmsgpack.pack(priority, ready_at, timeout, version + 1, beats,
    attempts + 1, retries, crashes) .. lease .. string.sub(value, rest + 1), lease_end, alarm
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
  for field, by in pairs(counted) do
    if by ~= 0 then
      local kind = stored_kind(base, string.sub(field, 1, 8))
      count(base, string.sub(field, 1, 9), string.sub(field, 10), by, kind.queue, kind.descriptor)
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
end
