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

-- Index a task under its status (sign 1), or take it out (sign -1). `other` is the status on the other side of the
-- change, if there is one: what both have in common is left alone.
local function index(base, id, kind, status, other, sign)
  local code, lane = status.code, kind .. status.priority
  if code == 'q' then
    if sign > 0 then
      put(adds, base .. 'l' .. lane, status.ready_at, id)
    elseif not (other and other.code == 'q' and other.priority == status.priority) then
      put(removals, base .. 'l' .. lane, id)
    end
  end
  if status.clock then
    if sign > 0 then
      put(adds, base .. status.clock, status.alarm and text_of(status.alarm) or 'inf', id)
    elseif not (other and other.clock == status.clock) then
      put(removals, base .. status.clock, id)
    end
  end
  if not (other and TREE[other.code] == TREE[code]) then
    put(sign > 0 and planted or uprooted, base .. 'i' .. TREE[code], id)
  end
  counted[lane .. code] = (counted[lane .. code] or 0) + sign
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
    head = string.sub(bytes, at + 1, at + 3), -- the start of the array, which tells how many fields it has
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

-- The first twelve fields as bytes, with the start of the array.
local function packed(status)
  return status.head .. cmsgpack.pack(status.state, status.priority, status.ready_at, status.timeout, status.version,
    status.beats, status.attempts, status.retries, status.crashes, status.alarm, status.lease, status.started_at)
end

-- Let a status be that of a task just claimed.
local function lease(status, now, till, grace, worker, token)
  local lease_end = math.min(till, now + status.timeout + grace)
  status.state, status.code, status.clock = 'executing', 'e', 'e'
  status.version, status.attempts = status.version + 1, status.attempts + 1
  status.started_at, status.lease, status.alarm = now, { token, worker, lease_end }, lease_end
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
