-- Put in front of the scripts that claim, behind lanes.lua: lane views, of queues with many lanes.
-- See ADR 0171.
--
-- A view is a sorted set of entries (see basics.lua), one for each lane that such a claim may take from, by priority and in
-- the order of their heads, so that a claim reads but the lanes that it takes from. It is made from the list of the
-- queue's lanes and follows the queue's log, in which is put down whose head became another one by what came; what went
-- is noticed when an entry is met. So an entry is its lane's head or older than that, or a lane's second one.
--
-- In front of the entries is the state of the view:
--   !b <lanes> <place in the log> <cursor>   being made
--   !r <lanes> <place in the log>            made
--   !o                                       someone changed the lanes who writes no log: for now it is of no use
-- where <lanes> is how many the queue had at that place in the log. A view goes by itself after a while.

local MADE = 256 -- lanes seen to by one call that makes a view
local HEADS = 512 -- heads in the log that one call sees to, or a few more
local ENTRIES = 128 -- entries of the log that one call reads
local UNREAD = 16 -- entries without a head that are rather read again than passed for good
local LONGEST = 60000 -- milliseconds for which a view may be in the making, or a log is kept without use
local UNLOGGED = 1000 -- milliseconds for which claims do without a view where someone writes no log
local SELECTED = 3600000 -- milliseconds

-- Of these lanes and their descriptors, those that the claim may take from.
local function select_lanes(names, descriptors)
  local known, kinds, chosen = {}, {}, {}
  for at, name in ipairs(names) do
    if descriptors[at] then
      known[#known + 1], kinds[#kinds + 1] = name, cmsgpack.unpack(descriptors[at])
    end
  end
  for at, verdict in ipairs(admitted(kinds)) do
    if verdict then
      chosen[known[at]] = kinds[at]
    end
  end
  return chosen
end

-- Let a view have these entries, too (0, entry, ...), and stand like this.
local function extend(view, entries, state)
  entries[#entries + 1], entries[#entries + 2] = 0, state
  write('zadd', view.key, entries)
  if view.state and view.state ~= state then
    call('zrem', view.key, view.state) -- behind the other: an empty set would be gone, and when it expires with it
  end
  view.state = state
end

-- Begin to make a view, or go on with it; whether it is made.
local function make(view, lanes)
  local base, name, log = view.base, view.name, view.base .. 'z' .. view.name
  local number, place, cursor = lanes, nil, '0'
  if view.state then
    number, place, cursor = string.match(view.state, '^!b (%d+) (%S+) (%d+)$')
  else
    local last = call('xrevrange', log, '+', '-', 'count', 1)[1]
    place = last and last[1] or call('xadd', log, '*', 'c', 0)
    call('pexpire', log, LONGEST)
  end
  local found = call('hscan', base .. 'q' .. name, cursor, 'count', MADE)
  local names, descriptors, entries = {}, {}, {}
  for at = 1, #found[2], 2 do
    names[#names + 1], descriptors[#descriptors + 1] = found[2][at], found[2][at + 1]
  end
  for lane, kind in pairs(select_lanes(names, descriptors)) do
    local list = kind[4] and 'f' or 'l'
    local head = call('zrange', base .. list .. lane, 0, 0, 'withscores')
    if head[1] then
      entries[#entries + 1], entries[#entries + 2] = 0, entry_of(lane, list, head[2], head[1])
    end
  end
  local is_made = found[1] == '0'
  if is_made then
    extend(view, entries, string.format('!r %d %s', number, place))
  else
    extend(view, entries, string.format('!b %d %s %s', number, place, found[1]))
  end
  -- Made anew so often, it takes no noticeable part of the server's time.
  call('pexpire', view.key, is_made and math.min(math.max(1000, lanes), LONGEST / 2) or LONGEST / 2)
  if selected then
    call('pexpire', selected, SELECTED)
  end
  return is_made
end

-- Let a view follow the log: 'made' when there is no more in it, 'more' when there is, 'lost' when it cannot be followed
-- and 'unlogged' when lanes have changed that are not in it.
local function follow(view, lanes)
  local number, place = string.match(view.state, '^!r (%-?%d+) (%S+)$')
  local news = call('xrange', view.base .. 'z' .. view.name, place, '+', 'count', ENTRIES)
  if not news[1] or news[1][1] ~= place then
    return 'lost'
  end
  local heads, names, seen, last = {}, {}, {}, 1
  for at = 2, #news do
    local fields = news[at][2]
    for field = 1, #fields, 2 do
      local value = fields[field + 1]
      if fields[field] == 'c' then
        number = number + value
      else
        local lane = string.sub(value, 26) .. string.sub(value, 1, 1)
        heads[#heads + 1] = value
        if not seen[lane] then
          seen[lane], names[#names + 1] = true, lane
        end
      end
    end
    last = at
    if #heads >= HEADS then
      break
    end
  end
  if #heads > 0 or last > UNREAD then
    local entries = {}
    for first = 1, #names, PIECE do
      local some = { unpack(names, first, math.min(first + PIECE - 1, #names)) }
      for lane in pairs(select_lanes(some, call('hmget', view.base .. 'q' .. view.name, unpack(some)))) do
        seen[lane] = 'chosen'
      end
    end
    for _, entry in ipairs(heads) do
      if seen[string.sub(entry, 26) .. string.sub(entry, 1, 1)] == 'chosen' then
        entries[#entries + 1], entries[#entries + 2] = 0, entry
      end
    end
    view.has_entries = view.has_entries or #entries > 0
    extend(view, entries, string.format('!r %d %s', number, news[last][1]))
  end
  if last < #news or #news == ENTRIES then
    return 'more'
  end
  return tonumber(number) == lanes and 'made' or 'unlogged'
end

-- Have a lane by one of its entries, once: an entry may be older than its head, and there may be several.
local function meet(line, entry)
  local name = string.sub(entry, 26) .. line.priority
  local lane = line.opened[name]
  if not lane then
    lane = lane_in(line, name)
    lane.met, lane.fetch = { entry }, 2
    line.opened[name] = lane
    if equip then
      local descriptor = call('hget', line.queue.base .. 'q' .. line.queue.name, name)
      if descriptor then
        lane.kind = cmsgpack.unpack(descriptor)
        equip(lane)
        lane.advance(lane)
      end
    else
      lane.advance(lane)
    end
    if lane.id then
      push(line.heap, lane)
    end
  else
    lane.met[#lane.met + 1] = entry
  end
end

-- Meet entries until the oldest head of a line is known.
read_on = function(line)
  while true do
    local entry = line.window[line.place]
    if not entry and not line.is_whole then
      line.window = call('zrangebylex', line.view.key, '(' .. line.window[#line.window],
        '(' .. line.priority + 1, 'limit', 0, line.fetch)
      line.is_whole = #line.window < line.fetch
      line.place, line.fetch = 1, math.min(2 * line.fetch, PIECE)
      entry = line.window[1]
    end
    local oldest = line.heap[1]
    if not entry then
      break
    elseif oldest then
      local ready_at, id = number_in('>I7', entry, 2), string.sub(entry, 9, 24)
      if oldest.ready_at < ready_at or (oldest.ready_at == ready_at and before(oldest.id, id)) then
        break
      end
    end
    line.place = line.place + 1
    meet(line, entry)
  end
  line.head = line.heap[1]
end

-- Let the lines of a queue be those of its view, of which these entries are the first.
local function line_up_by(queue, view, entries, count)
  local at, is_end, priority = 1, #entries < count, 0
  while true do
    if at > #entries and not is_end then
      entries = call('zrangebylex', view.key, '[' .. priority, '+', 'limit', 0, count)
      at, is_end = 1, #entries < count
    end
    if at > #entries then
      break
    end
    priority = string.byte(entries[at]) - 48
    local line, window = line_of_priority(queue, priority), {}
    while at <= #entries and string.byte(entries[at]) - 48 == priority do
      window[#window + 1], at = entries[at], at + 1
    end
    line.view, line.window, line.place, line.opened, line.fetch = view, window, 1, {}, 2 * count
    line.is_whole = at <= #entries or is_end
    read_on(line)
    priority = priority + 1
    if priority > 3 then
      break
    end
  end
end

-- The view of a queue, whose lines are then as it says; nil when the claim is to look at each lane; nil and -3 when it is
-- not made yet.
open_view = function(queue)
  local lanes = call('hlen', queue.base .. 'q' .. queue.name)
  if lanes <= FEW then
    return nil
  end
  is_crowded = true
  local view = { base = queue.base, name = queue.name, key = queue.base .. 'h' .. queue.name .. ' ' .. ARGV[12] }
  local count = math.min(limit, 64) + 2
  local entries = call('zrangebylex', view.key, '-', '+', 'limit', 0, count)
  view.state = entries[1]
  if view.state == '!o' then
    return nil
  elseif not view.state or string.sub(view.state, 1, 3) == '!b ' then
    if not make(view, lanes) then
      return nil, -3
    end
    view.has_entries = true
  end
  local state = follow(view, lanes)
  if state == 'more' then
    return nil, -3
  elseif state == 'lost' then
    call('del', view.key)
    return nil, -3
  elseif state == 'unlogged' then
    call('del', view.key)
    call('zadd', view.key, 0, '!o')
    call('pexpire', view.key, UNLOGGED)
    return nil
  end
  if view.has_entries then
    entries = call('zrangebylex', view.key, '[0', '+', 'limit', 0, count)
  else
    table.remove(entries, 1)
    count = count - 1
  end
  queue.view = view
  line_up_by(queue, view, entries, count)
  return view
end

-- Have the view of a queue say what the heads of the lanes are that were met.
close_view = function(queue)
  if not queue.view then
    return
  end
  local old, new = {}, {}
  for _, line in ipairs(queue.lines) do
    for name, lane in pairs(line.opened) do
      local id, ready_at = lane.id, lane.ready_at
      if lane.taken > lane.gone then
        local head = call('zrange', lane.key, 0, 0, 'withscores')
        id, ready_at = head[1], head[2]
      end
      local entry = id and entry_of(name, string.sub(lane.met[1], 25, 25), ready_at, id)
      for _, met in ipairs(lane.met) do
        if met == entry then
          entry = nil
        else
          old[#old + 1] = met
        end
      end
      if entry then
        new[#new + 1], new[#new + 2] = 0, entry
      end
    end
  end
  write('zrem', queue.view.key, old)
  write('zadd', queue.view.key, new)
end
