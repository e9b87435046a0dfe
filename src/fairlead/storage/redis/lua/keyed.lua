-- Put in front of the scripts that change tasks, behind tasks.lua: the indexes of tasks that have concurrency keys.
--
-- Such a task is in its lane like any other that is queued, and besides in the line of its key. Claims look at the front
-- of a lane alone, which has the first of each line. A key that may go on from a moment on is in the looks of its queue
-- with that moment; a key that is not there has the first of each of its lines in front. Which tasks of a key wait, and
-- which are executing, is counted, and nothing is kept of a key of which none is.

local NEVER = 9007199254740991

local function line_of(base, lane, key)
  return base .. 'p' .. lane .. ' ' .. key
end

-- Let the first task of a key come to the front of a lane.
local function come(base, queue, lane, key)
  local head, front = call('zrange', line_of(base, lane, key), 0, 0, 'withscores'), base .. 'f' .. lane
  if head[1] then
    call('zadd', front, head[2], head[1])
    if call('zrange', front, 0, 0)[1] == head[1] then
      put(news, base .. 'z' .. queue, 'h', entry_of(lane, 'f', head[2], head[1]))
    end
  end
end

-- One more task of a key is executing, or one less.
local function count_running(base, queue, key, by)
  if call('hincrby', base .. 'r' .. queue, key, by) == 0 then
    call('hdel', base .. 'r' .. queue, key)
  end
end

-- A task of a key is queued.
local function queue_up(base, queue, lane, key, ready_at, id)
  call('zadd', line_of(base, lane, key), ready_at, id)
  call('hincrby', base .. 'w' .. queue, key, 1)
  call('zadd', base .. 'k' .. queue, 'nx', 0, key)
end

-- A task of a key is no longer queued: who was behind it comes to the front.
local function queue_off(base, queue, lane, key, id)
  call('zrem', line_of(base, lane, key), id)
  if call('zrem', base .. 'f' .. lane, id) == 1 then
    come(base, queue, lane, key)
  end
  local waiting = base .. 'w' .. queue
  if call('hincrby', waiting, key, -1) == 0 then
    call('hdel', waiting, key)
    call('zrem', base .. 'k' .. queue, key)
    if call('hlen', waiting) == 1 and call('hexists', waiting, '') == 1 then
      call('del', waiting)
    end
  end
end

-- A task of a key stands otherwise than it did; either may be nil.
local function move(base, queue, kind, key, id, was, status)
  if was and status and was.code == 'e' and status.code == 'e' then
    return
  end
  if was and was.code == 'q' then
    queue_off(base, queue, kind .. was.priority, key, id)
  elseif was and was.code == 'e' then
    count_running(base, queue, key, -1)
    call('zadd', base .. 'k' .. queue, 'xx', 0, key)
  end
  if status and status.code == 'q' then
    queue_up(base, queue, kind .. status.priority, key, status.ready_at, id)
  elseif status and status.code == 'e' then
    count_running(base, queue, key, 1)
  end
end
