-- Compare and set statuses, in one slot.
--
-- KEYS[1]  the slot's base
-- ARGV     per change: id, guard, status (msgpack) or '' to remove the task
--          where a guard is 'h', the version in four bytes and the lease's token, or 's', the version and the beats in
--          four bytes each; or for a task that is not here and has ended elsewhere: id, 'x', 'c' if it completed; or
--          for a value that is no task's and is to be removed: id, '!', the value
--
-- Returns per change: 'a' applied | 'l' applied, and someone has nothing left to wait for | 's' stale | 'r' repeated |
-- 'm' missing | {'d', value} when that is no task's: nothing was changed.

local base = KEYS[1]
local tasks, order = {}, {}
local ENDED = { c = true, f = true, d = true, x = true }
local awaited -- whether any task of this slot is waited for, once someone has asked

local function load(id, where, value)
  local task = tasks[id]
  if task == nil then
    task = false
    local is_task, at, kind, key, status
    if value then
      is_task, at, kind, key, status = pcall(standing, where, value)
    end
    if is_task then
      local concurrency_key
      if type(key) == 'table' then
        key, concurrency_key = key[1] ~= '' and key[1] or nil, key[2]
      end
      task = {
        id = id, base = where, at = at, kind = kind, key = key, value = value, was = status, status = status,
        concurrency_key = concurrency_key, changed = false, rung = false,
      }
    end
    tasks[id] = task
    order[#order + 1] = id
  end
  return task
end

-- What the last lease holder said.
local function settled_of(bytes, rest)
  local _, _, settled = cmsgpack.unpack_limit(bytes, 2, result_end(bytes, rest)) -- progress, settled
  return settled
end

local function holds(guard, status)
  if number_in('>I4', guard, 2) ~= status.version then
    return false
  end
  if string.byte(guard) == 104 then -- 'h'
    return status.lease and string.sub(guard, 6) == status.lease[1]
  end
  return number_in('>I4', guard, 6) == status.beats
end

local function refusal(task, guard, bytes)
  if string.sub(guard, 1, 1) == 'h' and bytes ~= '' then
    local said = settled_of(bytes, status_at(bytes, 0).rest)
    local is_sound, before = pcall(settled_of, task.value, task.status.rest)
    if said and is_sound and said == before then
      return 'r'
    end
  end
  return 's'
end

-- Let a task that waits know that one of those has ended.
local function count_for(task, completed)
  local value, at = task.value, task.at
  local status = status_at(value, at)
  local start, stop, pending, unmet = counts_in(value, status.rest)
  pending, unmet = pending - 1, completed and unmet or unmet + 1
  status.version = status.version + 1
  status.alarm = pending == 0 and 0 or nil
  task.value = rewritten(value, at, status, string.sub(value, status.rest + 1, start) .. cmsgpack.pack(pending, unmet)
    .. string.sub(value, stop + 1))
  task.status = status_at(task.value, at)
  task.changed = true
  return pending == 0
end

-- Let those who wait for a task know that it has ended; whether any of them has nothing left to wait for.
local function count_end(id, completed)
  if awaited == nil then
    awaited = call('exists', base .. 'v') == 1
  end
  if not awaited or call('srem', base .. 'v', id) == 0 then
    return false
  end
  local last = false
  local counted_for = {} -- one that was set aside and put back is there twice
  for _, dependent in ipairs(call('lrange', base .. 'v' .. id, 0, -1)) do
    local where = base_of(dependent)
    local task = not counted_for[dependent] and load(dependent, where, call('get', where .. 't' .. dependent))
    counted_for[dependent] = true
    if task and task.status and task.status.code == 's' and not task.status.alarm then
      local is_sound, is_last = pcall(count_for, task, completed) -- damage further back is met by whoever reads it
      last = is_sound and is_last or last
    end
  end
  call('del', base .. 'v' .. id)
  return last
end

-- Have a task removed whose value is no task's, if it is still this one.
local function set_aside(id, bytes, value)
  if value ~= bytes then
    return value and 's' or 'm'
  end
  local task = found(base, id, value)
  tasks[id] = task
  order[#order + 1] = id
  return task.was and not ENDED[task.was.code] and count_end(id, false) and 'l' or 'a'
end

local function apply(id, guard, bytes, value)
  if guard == 'x' then
    return count_end(id, bytes == 'c') and 'l' or 'm'
  elseif guard == '!' then
    return set_aside(id, bytes, value)
  end
  local task = load(id, base, value)
  if not task then
    return value and { 'd', value } or 'm'
  elseif not task.status then
    return 'm'
  end
  if not holds(guard, task.status) then
    return refusal(task, guard, bytes)
  end
  local before = task.status.code
  if bytes == '' then
    task.status = nil
  else
    task.value = string.sub(task.value, 1, task.at) .. bytes
    task.status = status_at(task.value, task.at)
    task.rung = task.status.code == 'q'
  end
  task.changed = true
  if not ENDED[before] and (not task.status or ENDED[task.status.code]) then
    return count_end(id, task.status and task.status.code == 'c') and 'l' or 'a'
  end
  return 'a'
end

-- Let a fair task have its turn where it comes to be queued, and keep it where it stays so.
local function take_turn(task)
  local where, queue, was, status = task.base, stored_kind(task.base, task.kind).queue, task.was, task.status
  local from = was and was.code == 'q' and was.priority
  local to = status and status.code == 'q' and status.priority
  if not from and not to then
    return
  end
  local is_known, key, step = pcall(fair_in, task.value)
  if not is_known then
    key = from and lost_fair_key(where, queue, from, task.id)
  end
  local turn
  if to and from == to then
    turn = tonumber(call('zscore', where .. 'x' .. lane_of(task.kind, to), task.id) or nil)
  end
  if to and not turn and key then
    turn = join(fair_line(where, queue, to), key, step, turn_in(task.value, status.rest))
    put(adds, where .. 'x' .. lane_of(task.kind, to), text_of(turn), task.id)
  end
  if turn then
    task.value = with_turn(task.value, status.rest, turn)
  end
  if from and from ~= to then
    put(removals, where .. 'x' .. lane_of(task.kind, from), task.id)
    if key then
      leave(fair_line(where, queue, from), key)
    end
  end
end

local function forget(task, queue)
  call('del', base .. 't' .. task.id)
  died[task.kind] = true
  if task.key then
    local name = base .. 'y' .. queue .. ' ' .. task.key
    local held = call('get', name)
    if held and string.sub(held, 1, 16) == task.id then
      call('del', name)
    end
  end
end

local keys = {}
for at = 1, #ARGV, 3 do
  keys[#keys + 1] = base .. 't' .. ARGV[at]
end
local values = call('mget', unpack(keys))
local verdicts = {}
for at, value in ipairs(values) do
  verdicts[at] = apply(ARGV[3 * at - 2], ARGV[3 * at - 1], ARGV[3 * at], value)
end
local stored = {}
for _, id in ipairs(order) do
  local task = tasks[id]
  if task and task.changed and not task.kind then
    call('del', base .. 't' .. id) -- no index has it
    note(base, id, '-')
  elseif task and task.changed then
    local where = task.base
    index(where, id, task.kind, task.was, task.status)
    if is_fair(stored_kind(where, task.kind).descriptor) then
      take_turn(task)
    end
    if task.concurrency_key then
      move(where, stored_kind(where, task.kind).queue, task.kind, task.concurrency_key, id, task.was, task.status)
    end
    if task.status then
      stored[#stored + 1] = where .. 't' .. id
      stored[#stored + 1] = task.value
      note(where, id)
      if task.rung then
        local doorbell = base .. 'b' .. stored_kind(where, task.kind).queue
        rings[doorbell] = (rings[doorbell] or 0) + 1
      end
    else
      forget(task, stored_kind(where, task.kind).queue)
      note(base, id, '-')
    end
  end
end
store_all(stored)
write_lines()
flush(base)
return verdicts
