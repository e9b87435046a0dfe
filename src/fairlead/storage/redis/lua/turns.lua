-- Put in front of the scripts that claim, behind lanes.lua: which of several lines is served next, as in
-- fairlead.core.queues.order, whose rules this repeats.

-- Rank a line by its head: `own` is what it has by its priority, and `rank` is better if the head was promoted.
local function judge(line, rules)
  local rule = rules[line.priority + 1]
  local rank, waited = rule[1], now - line.head.ready_at
  for _, step in ipairs(rule[3]) do
    if waited < step[1] then
      break
    end
    rank = step[2]
  end
  line.own, line.rank, line.mark = rule[1], rank, line.head.ready_at - rule[2]
end

local function is_before(line, rank, other, other_rank)
  if rank ~= other_rank then
    return rank < other_rank
  end
  return line.mark < other.mark or (line.mark == other.mark and before(line.head.id, other.head.id))
end

-- The line of a queue that is served where promoted tasks and others take turns, and the rank it has there. `best` is
-- the one that would be served if they did not.
local function sharing(queue, best)
  local is_due = queue.passed >= queue.share[1] - 1
  local turn, own
  for _, line in ipairs(queue.lines) do
    if line.head then
      local promoted = line.rank < line.own
      if queue.share[2] then
        if not own or is_before(line, line.own, own, own.own) then
          own = line
        end
        if promoted and (not turn or is_before(line, line.rank, turn, turn.rank)) then
          turn = line
        end
      elseif line.rank == queue.top and promoted == is_due
          and (not turn or is_before(line, line.rank, turn, turn.rank)) then
        turn = line
      end
    end
  end
  if not queue.share[2] then
    best = best.rank == queue.top and turn or best
    return best, best.rank
  elseif is_due and turn.rank <= own.own then
    return turn, turn.rank
  end
  return own, own.own
end

-- Let a queue offer the line that is next of its own.
local function offer(queue, turn)
  local rules = queue.tables[turn % #queue.tables + 1]
  local best, promoted
  for _, line in ipairs(queue.lines) do
    if line.turns then
      refresh(line)
    end
    if line.head then
      judge(line, rules)
      promoted = promoted or line.rank < line.own
      if not best or is_before(line, line.rank, best, best.rank) then
        best = line
      end
    end
  end
  queue.best, queue.rank, queue.stale = best, best and best.rank, #queue.tables > 1
  if promoted and queue.share then
    queue.best, queue.rank = sharing(queue, best)
  end
end

-- The line to be served next, or nil.
local function choose(queues, turn)
  local best
  for _, queue in ipairs(queues) do
    if queue.stale then
      offer(queue, turn)
    end
    if queue.best and (not best or is_before(queue.best, queue.rank, best.best, best.rank)) then
      best = queue
    end
  end
  return best and best.best
end

-- Take note that the head of a line is served.
local function serve(line)
  local queue = line.queue
  queue.stale = true
  if queue.share and (queue.share[2] or line.rank == queue.top) then
    local due = queue.share[1] - 1
    local of_theirs = queue.passed >= due or not queue.share[2]
    queue.passed = of_theirs and line.rank < line.own and 0 or math.min(queue.passed + 1, due)
  end
end
