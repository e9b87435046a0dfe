-- Put in front of the scripts that queue tasks or take them, behind tasks.lua: the turns of fair tasks, as in
-- fairlead.core.queues.fairness, whose arithmetic this repeats.
--
-- Such a task is in its lane by its age like any other that is queued, and besides by its turn. Of each line, that is a
-- queue's priority, a hash tells how far its turns have come and what its keys were given last; it goes with the last fair
-- task that waits there. In a task's value the key and the step are where the spec has its id, as '<step> <key>', or
-- ' <key>' where the step is that of weight 1.

local STEP = 5040
local LINE = 'l' -- the field of what is known of the line; those of keys begin with a k

local fair_lines = {} -- by key of the hash

-- How far the turns of a line have come.
local function fair_line(base, queue, priority)
  local name = base .. 'u' .. priority .. queue
  local line = fair_lines[name]
  if not line then
    line = { name = name, reached = 0, others = 0, waiting = 0, keys = {} }
    local stored = call('hget', name, LINE)
    if stored then
      line.reached, line.others, line.waiting = number_in('>I7I7I5', stored)
    end
    fair_lines[name] = line
  end
  return line
end

-- Have these keys of a line at hand.
local function read_fair_keys(line, keys)
  local missing, fields = {}, {}
  for _, key in ipairs(keys) do
    if not line.keys[key] then
      line.keys[key] = { last = 0, waiting = 0 }
      missing[#missing + 1], fields[#fields + 1] = key, 'k' .. key
    end
  end
  for first = 1, line.waiting > 0 and #fields or 0, PIECE do
    for at, stored in ipairs(call('hmget', line.name, unpack(fields, first, math.min(first + PIECE - 1, #fields)))) do
      if stored then
        local found = line.keys[missing[first + at - 1]]
        found.last, found.waiting = number_in('>I7I5', stored)
      end
    end
  end
end

local function fair_key(line, key)
  if not line.keys[key] then
    read_fair_keys(line, { key })
  end
  return line.keys[key]
end

-- The turn of a task that comes into a line; `own` is 0 unless it keeps the one it had.
local function join(line, key, step, own)
  local found = line.keys[key] or fair_key(line, key)
  local last = found.waiting > 0 and found.last or 0
  local turn = own > 0 and math.min(own, line.reached + step) or math.max(line.reached, last) + step
  found.last, found.waiting, found.changed = math.max(last, turn), found.waiting + 1, true
  line.waiting, line.changed = line.waiting + 1, true
  return turn
end

-- A task waits no more in a line. An earlier version does not count, so there may be none by the count.
local function leave(line, key)
  local found = fair_key(line, key)
  found.waiting, found.changed = math.max(found.waiting - 1, 0), true
  line.waiting, line.changed = math.max(line.waiting - 1, 0), true
end

local function turn_of_others(line)
  return line.others > 0 and line.others or line.reached + STEP
end

-- Write how the lines stand; before the lists of lanes follow, with which what is left of them goes.
local function write_lines()
  for name, line in pairs(fair_lines) do
    if line.changed and line.waiting == 0 then
      call('del', name)
    elseif line.changed then
      local stored, gone = { LINE, struct.pack('>I7I7I5', line.reached, line.others, line.waiting) }, {}
      for key, found in pairs(line.keys) do
        if found.changed and found.waiting == 0 then
          gone[#gone + 1] = 'k' .. key
        elseif found.changed then
          local last = #stored
          stored[last + 1], stored[last + 2] = 'k' .. key, struct.pack('>I7I5', found.last, found.waiting)
        end
      end
      write('hset', name, stored)
      write('hdel', name, gone)
    end
  end
  fair_lines = {}
end

local known_fair = {}

-- The fair key in a task's value and its step; an error says that there is none. `spec` is where its spec begins.
local function fair_in(value, spec)
  if not spec then
    spec = cmsgpack.unpack_limit(value, 3, 1)
  end
  local _, text = cmsgpack.unpack_limit(value, 1, spec + 3)
  local found = known_fair[text]
  if not found then
    local step, key = string.match(text, '^(%d*) (.*)$')
    if not step then
      error('this is no fair task')
    end
    found = { step = tonumber(step) or STEP, key = key }
    known_fair[text] = found
  end
  return found.key, found.step
end

-- A value with another turn; `rest` is where the first twelve fields of its status end.
local function with_turn(value, rest, turn)
  local start = cmsgpack.unpack_limit(value, 10, rest) -- ended_at to unmet
  local stop = cmsgpack.unpack_limit(value, 1, start)
  return string.sub(value, 1, start) .. cmsgpack.pack(turn) .. (stop < 0 and '' or string.sub(value, stop + 1))
end

-- The turn that a status says.
local function turn_in(value, rest)
  local start = cmsgpack.unpack_limit(value, 10, rest)
  local _, turn = cmsgpack.unpack_limit(value, 1, start)
  return turn
end

-- Have the oldest task of a lane take turns if it has none: an earlier version has queued it.
local function join_oldest(base, queue, lane, id)
  if call('zscore', base .. 'x' .. lane, id) then
    return
  end
  local is_fair_task, key, step = pcall(fair_in, call('get', base .. 't' .. id) or '')
  if is_fair_task then
    local turn = join(fair_line(base, queue, string.sub(lane, 9)), key, step, 0)
    call('zadd', base .. 'x' .. lane, text_of(turn), id)
  end
end
