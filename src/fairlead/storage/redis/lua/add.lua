-- Store new tasks of one slot.
--
-- KEYS[1]  the slot's base
-- ARGV[1]  now, or '' for the server's clock
-- ARGV[2]  the mark that the slot must bear to take an idempotency key, or ''
-- ARGV[3]  how many kinds follow
-- ARGV     per kind: kind, queue, descriptor, the queue's bound or '', and 'k' if its tasks have concurrency keys, 'f' if
--          they take turns, else ''
-- ARGV     per task: id, lane, state's code, ready_at, alarm or '', idempotency key, value; of one that takes turns the
--          value up to its turn, the turn that it says, and what is behind it
--          where the key is '', or until when it is held, a space, its queue, a space and its name
--          and instead of an alarm a task that waits for others has '>', how many of them are unmet at least in four
--          bytes, and per task waited for its id and the code of its state if it is not here but elsewhere, else '?'
--
-- Returns per task: 1 added | 0 known | the id of the key's holder | {depth, bound} when the queue is full |
-- 'm' and the id of a task to wait for that is not there | 'u' when the slot may have lost the key's holder.

local base, kinds, depths = KEYS[1], {}, {}
local now -- once someone has asked
local unsure = ARGV[2] ~= '' and call('get', base .. 'm') ~= ARGV[2]
local at = 4
for _ = 1, ARGV[3] do
  kinds[ARGV[at]] = at
  at = at + 5
end

local function the_moment()
  now = now or moment(ARGV[1])
  return now
end

-- How many tasks of a queue wait.
local function depth_of(queue)
  local depth, stored = 0, call('hgetall', base .. 'd')
  local named = {}
  for entry = 1, #stored, 2 do
    named[stored[entry]] = cmsgpack.unpack(stored[entry + 1])[1] == queue
  end
  local numbers = call('hgetall', base .. 'n')
  for entry = 1, #numbers, 2 do
    local code = string.sub(numbers[entry], 10)
    if (code == 'q' or code == 's') and named[string.sub(numbers[entry], 1, 8)] then
      depth = depth + numbers[entry + 1]
    end
  end
  return depth
end

local STATES = {
  scheduled = true, queued = true, executing = true, completed = true, failed = true, dead_letter = true,
  cancelled = true,
}
local PENDING = { s = true, q = true, e = true, scheduled = true, queued = true, executing = true }

-- Those that a task is to wait for and that have not ended, and how many ended other than completed; or nil and the id
-- of one that is not there.
local function named_in(word)
  local pending, unmet = {}, 0
  for first = 6, #word, 17 do
    local id, state = string.sub(word, first, first + 15), string.sub(word, first + 16, first + 16)
    local value = call('get', base_of(id) .. 't' .. id)
    if value then
      local is_task, _, at = pcall(cmsgpack.unpack_one, value, 1)
      local is_sound, _, stored = pcall(cmsgpack.unpack_one, value, is_task and at + 3)
      state = is_sound and STATES[stored] and stored or '?' -- what cannot be read is as good as not there
    end
    if PENDING[state] then
      pending[#pending + 1] = id
    elseif state == '?' then
      return nil, id
    elseif state ~= 'completed' and state ~= 'c' then
      unmet = unmet + 1
    end
  end
  return pending, math.max(unmet, (struct.unpack('>I4', word, 2)))
end

-- The value of a task that waits for so many, of which so many are unmet; with nothing to wait for its alarm is at once.
local function counted_value(value, pending, unmet)
  local _, at = cmsgpack.unpack_one(value, 1)
  local alarm = cmsgpack.unpack_limit(value, 9, at + 3) -- state to crashes
  local start, stop = counts_in(value, (cmsgpack.unpack_limit(value, 3, alarm))) -- alarm, lease, started_at
  local byte = pending == 0 and '\0' or '\192' -- zero or nil
  return string.sub(value, 1, alarm) .. byte .. string.sub(value, alarm + 2, start) .. cmsgpack.pack(pending, unmet)
    .. string.sub(value, stop + 1)
end

-- Store a task that has an idempotency key or waits for others, or whose queue has a bound.
local function store(id, waits, queue, bound, key, value, word)
  if call('exists', base .. 't' .. id) == 1 then
    return 0
  end
  local space = string.find(key, ' ', 1, true)
  if space and unsure then
    return 'u'
  end
  local holder = space and holder_of(base, string.sub(key, space + 1), the_moment)
  if holder then
    return holder
  end
  local pending, unmet
  if word then
    pending, unmet = named_in(word)
    if not pending then
      return 'm' .. unmet
    end
    value = counted_value(value, #pending, unmet)
  end
  if bound and waits then
    local depth = depths[queue] or depth_of(queue)
    if depth >= bound then
      return { depth, bound }
    end
    depths[queue] = depth + 1
  end
  call('set', base .. 't' .. id, value)
  for _, parent in ipairs(pending or {}) do
    local parents = base_of(parent) .. 'v'
    call('sadd', parents, parent)
    call('rpush', parents .. parent, id)
  end
  if space then
    call('set', base .. 'y' .. string.sub(key, space + 1), id .. string.sub(key, 1, space - 1))
  end
  return 1, pending and #pending == 0
end

local receipts, indexes, trees, counted = {}, {}, {}, {}
local came = {} -- fair tasks that are ready

-- Give turns to those that came, in the order in which they did.
local function give_turns()
  local keys, stored = {}, {}
  for _, task in ipairs(came) do
    keys[task.line] = keys[task.line] or {}
    table.insert(keys[task.line], task.key)
  end
  for line, named in pairs(keys) do
    read_fair_keys(line, named)
  end
  for at, task in ipairs(came) do
    local turn = join(task.line, task.key, task.step, task.own)
    put(indexes, 'x' .. task.lane, text_of(turn), task.id)
    stored[2 * at - 1], stored[2 * at] = base .. 't' .. task.id, task.head .. cmsgpack.pack(turn) .. task.tail
  end
  store_all(stored)
  write_lines()
end

while at <= #ARGV do
  local id, lane, code, ready_at, alarm, key, value = unpack(ARGV, at, at + 6)
  at = at + 7
  local kind = kinds[string.sub(lane, 1, 8)]
  local fair = ARGV[kind + 4] == 'f' and { id = id, lane = lane, own = tonumber(ARGV[at]), tail = ARGV[at + 1] }
  if fair then
    value = value .. cmsgpack.pack(fair.own) .. fair.tail
    at = at + 2
  end
  local bound = ARGV[kind + 3]
  local word = string.byte(alarm) == 62 and alarm
  local receipt
  if word then
    local at_once
    receipt, at_once = store(id, true, ARGV[kind + 1], tonumber(bound), key, value, word)
    alarm = at_once and '0' or ''
  elseif key == '' and bound == '' then
    receipt = call('set', base .. 't' .. id, value, 'nx') and 1 or 0
  else
    receipt = store(id, code == 's' or code == 'q', ARGV[kind + 1], tonumber(bound), key, value)
  end
  if receipt == 1 then
    if code == 'q' then
      put(indexes, 'l' .. lane, ready_at, id)
      if fair then
        fair.line, fair.head = fair_line(base, ARGV[kind + 1], string.sub(lane, 9)), ARGV[at - 3]
        fair.key, fair.step = fair_in(value)
        came[#came + 1] = fair
      elseif ARGV[kind + 4] == 'k' then
        local _, _, _, keys = cmsgpack.unpack_limit(value, 3, 1)
        queue_up(base, ARGV[kind + 1], lane, keys[2], ready_at, id)
      end
    end
    if alarm ~= '' then
      put(indexes, 'a', alarm, id)
    end
    put(trees, code == 'q' and 'w' or code, id)
    counted[lane .. code] = (counted[lane .. code] or 0) + 1
  end
  receipts[#receipts + 1] = receipt
end

if came[1] then
  give_turns()
end
for suffix, list in pairs(indexes) do
  write('zadd', base .. suffix, list)
end
for tree, ids in pairs(trees) do
  plant(base .. 'i' .. tree, ids)
end
count(base, counted, function(kind)
  return ARGV[kinds[kind] + 1], ARGV[kinds[kind] + 2]
end, true)
local ready = {}
for field, by in pairs(counted) do
  if string.sub(field, 10) == 'q' then
    local lane, kind = string.sub(field, 1, 9), kinds[string.sub(field, 1, 8)]
    local queue = ARGV[kind + 1]
    ready[queue] = (ready[queue] or 0) + by
    if ARGV[kind + 4] ~= 'k' then
      local list = indexes['l' .. lane]
      tell_head(base, queue, lane, list, 1, #list)
    end
  end
end
for queue, times in pairs(ready) do
  ring(base .. 'b' .. queue, times)
end
write_news()
return receipts
