-- Put in front of apply.lua, behind indexes.lua and keyed.lua: where a task is whose value cannot be read.
--
-- What its value still says is not believed: the indexes say in which state and lane it is counted. Where they do not,
-- the tasks beside it are counted, and it is of the lane that counts one more. That reads all of them, once.

-- Each lane with how many tasks of this state it counts; of this kind alone if there is one.
local function counting(base, code, kind)
  local lanes, numbers = {}, call('hgetall', base .. 'n')
  for entry = 1, #numbers, 2 do
    local field = numbers[entry]
    if string.sub(field, 10) == code and (not kind or string.sub(field, 1, 8) == kind) then
      lanes[string.sub(field, 1, 9)] = tonumber(numbers[entry + 1])
    end
  end
  return lanes
end

-- The state of a task by its indexes, and its lane if it is ready.
local function state_of(base, id)
  if call('zscore', base .. 'e', id) then
    return 'e'
  end
  for lane in pairs(counting(base, 'q')) do
    if call('zscore', base .. 'l' .. lane, id) then
      return 'q', lane
    end
  end
  for code in string.gmatch('scfdx', '.') do
    local tree = base .. 'i' .. code
    local bucket = call('get', tree .. start_of(tree, id))
    if bucket and place_of(bucket, id) then
      return code
    end
  end
  return nil
end

-- Every task in a state, as far as it can be read: told to `tell` by its lane and its keys.
local function each_beside(base, code, tell)
  local pieces = {}
  if code == 'e' then
    pieces[1] = table.concat(call('zrange', base .. 'e', 0, -1))
  else
    for _, start in ipairs(call('zrange', base .. 'i' .. code, 0, -1)) do
      pieces[#pieces + 1] = call('get', base .. 'i' .. code .. start)
    end
  end
  for _, ids in ipairs(pieces) do
    for first = 1, #ids, ID do
      local value = call('get', base .. 't' .. string.sub(ids, first, first + ID - 1))
      if value then
        local is_task, _, kind, keys, status = pcall(standing, base, value)
        if is_task and status.code == code then
          tell(lane_of(kind, status.priority), keys)
        end
      end
    end
  end
end

-- The one of which there are fewer than are counted.
local function surplus(counts, base, code, name_of)
  local only = next(counts)
  if only and not next(counts, only) then
    return only
  end
  each_beside(base, code, function(lane, keys)
    local name = name_of(lane, keys)
    if name and counts[name] then
      counts[name] = counts[name] - 1
    end
  end)
  for name, left in pairs(counts) do
    if left > 0 then
      return name
    end
  end
  return nil
end

-- The concurrency key of a task in a lane of such tasks.
local function lost_key(base, id, code, lane, queue)
  if code == 'q' then
    for _, key in ipairs(call('hkeys', base .. 'w' .. queue)) do
      if call('zscore', line_of(base, lane, key), id) then
        return key
      end
    end
  elseif code == 'e' then
    local counts, numbers = {}, call('hgetall', base .. 'r' .. queue)
    for entry = 1, #numbers, 2 do
      counts[numbers[entry]] = tonumber(numbers[entry + 1])
    end
    return surplus(counts, base, code, function(beside, keys)
      return stored_kind(base, string.sub(beside, 1, 8)).queue == queue and type(keys) == 'table' and keys[2]
    end)
  end
  return nil
end

-- The fair key of a task that waits in a line.
local function lost_fair_key(base, queue, priority, id)
  local counts, stored, ready = {}, call('hgetall', fair_line(base, queue, priority).name), call('hgetall', base .. 'q' .. queue)
  for entry = 1, #stored, 2 do
    if stored[entry] ~= LINE then
      local _, waiting = number_in('>I7I5', stored[entry + 1])
      counts[string.sub(stored[entry], 2)] = waiting
    end
  end
  for entry = 1, #ready, 2 do
    local lane = ready[entry]
    local is_of_line = is_fair(ready[entry + 1]) and tonumber(string.sub(lane, 9)) == priority
    for _, beside in ipairs(is_of_line and call('zrange', base .. 'l' .. lane, 0, -1) or {}) do
      local value = beside ~= id and call('get', base .. 't' .. beside)
      local is_known, key = pcall(fair_in, value or '')
      if is_known and counts[key] then
        counts[key] = counts[key] - 1
      end
    end
  end
  for key, left in pairs(counts) do
    if left > 0 then
      return key
    end
  end
  return nil
end

-- The head of a value, as far as it can be read: its kind if there are tasks of it, its idempotency key and its
-- concurrency key.
local function head_of(base, value)
  local is_head, _, _, kind, keys = pcall(cmsgpack.unpack_limit, value, 3, 1)
  if not is_head or not pcall(stored_kind, base, kind) then
    return nil
  elseif type(keys) == 'table' then
    return kind, keys[1] ~= '' and keys[1] or nil, keys[2]
  end
  return kind, keys
end

-- A task whose value cannot be read, as it is to be removed.
local function found(base, id, value)
  local kind, key, concurrency_key = head_of(base, value)
  local code, lane = state_of(base, id)
  local task = { id = id, base = base, key = key, value = value, changed = true }
  if not code then
    return task
  end
  if not lane then
    lane = surplus(counting(base, code, kind), base, code, function(beside)
      return beside
    end)
  end
  if not lane then
    return task
  end
  task.kind = string.sub(lane, 1, 8)
  local clock = code == 'e' and 'e' or call('zscore', base .. 'a', id) and 'a' or nil
  task.was = { code = code, priority = tonumber(string.sub(lane, 9)), clock = clock }
  if is_keyed(stored_kind(base, task.kind).descriptor) then
    task.concurrency_key = concurrency_key or lost_key(base, id, code, lane, stored_kind(base, task.kind).queue)
  end
  return task
end
