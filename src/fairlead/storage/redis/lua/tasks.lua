-- Put in front of the scripts that change tasks, behind basics.lua: how a task's value is read and made. NOTES says
-- whether what changes is noted in the outbox.
--
-- A task's value is a msgpack array: [where the status starts, kind, idempotency key or nil, spec, status]. Only the
-- first twelve fields of the status are ever read here; parameters, results and failures are bytes that pass by.

local CODE = {
  scheduled = 's', queued = 'q', executing = 'e', completed = 'c', failed = 'f', dead_letter = 'd', cancelled = 'x',
}
local PRIORITIES = { [0] = true, true, true, true }
local noted_at -- milliseconds, by the server's clock; a later moment hides a note until then
if NOTES then
  noted_at = math.floor(clock() / 1000)
end

-- What the indexes need of a status that begins at this offset (counted from 0) of a string. An error says that there
-- is no status; as Redis takes nothing back, a stored value is read by `pcall`, and before the first write.
local function status_at(bytes, at)
  local rest, state, priority, ready_at, timeout, version, beats, attempts, retries, crashes, alarm, lease, started_at =
    cmsgpack.unpack_limit(bytes, 12, at + 3)
  local code = CODE[state]
  -- What is no number cannot be added, and only the four priorities are keys.
  if not code or not PRIORITIES[priority] or lease and not lease[3]
      or ready_at + timeout + version + beats + attempts + (alarm or 0) + (started_at or 0) < 0 then
    error('this is no status')
  end
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
-- An error says that there is no status.
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

-- The same of a value that was just read; nil if it is no task's.
local function leased_value(value, now, till, grace, worker, token)
  local is_task, _, at = pcall(cmsgpack.unpack_one, value, 1)
  if not is_task then
    return nil
  end
  local is_sound, after, lease_end, alarm = pcall(leased, value, at, now, till, grace, worker, token)
  if is_sound then
    return after, lease_end, alarm
  end
  return nil
end
