-- Compare and set statuses, in one slot.
--
-- KEYS[1]  the slot's base
-- ARGV     per change: id, guard, status (msgpack) or '' to remove the task
--          where a guard is 'h', the version, a space and the lease's token, or 's', the version, a space and the beats
--
-- Returns per change: 'a' applied | 's' stale | 'r' repeated | 'm' missing.

local base = KEYS[1]
local tasks, order = {}, {}

local function load(id)
  local task = tasks[id]
  if task == nil then
    local value = call('get', base .. 't' .. id)
    task = false
    if value then
      local _, at, kind, key = cmsgpack.unpack_limit(value, 3, 1)
      local status = status_at(value, at)
      local concurrency_key
      if type(key) == 'table' then
        key, concurrency_key = key[1] ~= '' and key[1] or nil, key[2]
      end
      task = {
        id = id, at = at, kind = kind, key = key, value = value, was = status, status = status,
        concurrency_key = concurrency_key,
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
  if string.sub(guard, 1, 1) == 'h' then
    return status.lease and guard == 'h' .. status.version .. ' ' .. status.lease[1]
  end
  return guard == 's' .. status.version .. ' ' .. status.beats
end

local function refusal(task, guard, bytes)
  if string.sub(guard, 1, 1) == 'h' and bytes ~= '' then
    local said = settled_of(bytes, status_at(bytes, 0).rest)
    if said and said == settled_of(task.value, task.status.rest) then
      return 'r'
    end
  end
  return 's'
end

local function apply(id, guard, bytes)
  local task = load(id)
  if not task or not task.status then
    return 'm'
  end
  if not holds(guard, task.status) then
    return refusal(task, guard, bytes)
  end
  if bytes == '' then
    task.status = nil
  else
    task.value = string.sub(task.value, 1, task.at) .. bytes
    task.status = status_at(task.value, task.at)
    task.rung = task.status.code == 'q'
  end
  task.changed = true
  return 'a'
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

local verdicts = {}
for at = 1, #ARGV, 3 do
  verdicts[#verdicts + 1] = apply(ARGV[at], ARGV[at + 1], ARGV[at + 2])
end
for _, id in ipairs(order) do
  local task = tasks[id]
  if task and task.changed then
    local queue = stored_kind(base, task.kind).queue
    index(base, id, task.kind, task.was, task.status, -1)
    if task.concurrency_key then
      move(base, queue, task.kind, task.concurrency_key, id, task.was, task.status)
    end
    if task.status then
      call('set', base .. 't' .. id, task.value)
      index(base, id, task.kind, task.status, task.was, 1)
      note(base, id)
      if task.rung then
        rings[base .. 'b' .. queue] = (rings[base .. 'b' .. queue] or 0) + 1
      end
    else
      forget(task, queue)
      note(base, id, '-')
    end
  end
end
flush(base)
return verdicts
