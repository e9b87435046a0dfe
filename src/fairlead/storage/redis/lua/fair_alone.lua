-- Put in front of claim.lua, behind lane_alone.lua and fair.lua: the claim from one queue that has one lane, of fair tasks
-- none of which was promoted, in a straight line. What an earlier version may have left there is for claim_limited.lua.

local function claim_by_turn(base, lane, queue)
  local slot = { base = base, added = {}, removed = {} }
  local key = base .. 'x' .. lane
  local placed = call('zrange', key, 0, limit - 1, 'withscores')
  number = #placed / 2
  for at = 1, number do
    ids[at] = placed[2 * at - 1]
  end
  for first = 1, number, PIECE do
    local last = math.min(first + PIECE - 1, number)
    for _, score in ipairs(call('zmscore', base .. 'l' .. lane, unpack(ids, first, last))) do
      if not score then
        number = 0 -- nothing is written yet
        return false
      end
    end
  end
  local taken = { queue = { base = base, name = queue, slot = slot }, key = key, name = lane, gone = 0, moved = 0 }
  for at = 1, number do
    lanes[at] = taken
  end
  hold_all({ slot })
  local line, keys = fair_line(base, queue, string.sub(lane, 9)), {}
  for at = 2, #answer - 1, 2 do
    if #answer[at] == ID then
      keys[#keys + 1] = fair_in(answer[at + 1])
    end
  end
  read_fair_keys(line, keys)
  for _, each in ipairs(keys) do
    leave(line, each)
  end
  if reached > 0 then
    write('zrem', base .. 'l' .. lane, { unpack(ids, 1, reached) })
    line.reached, line.changed = math.max(line.reached, placed[2 * reached]), true
  end
  if reached < limit and answer[1] == 0 and reached == number then
    line.waiting = 0
  end
  write_lines()
  return true
end

-- Whether the oldest task of the lane is promoted by none of the tables, and takes turns.
local function is_by_turn(base, lane)
  local oldest = call('zrange', base .. 'l' .. lane, 0, 0, 'withscores')
  for _, rules in ipairs(cmsgpack.unpack(ARGV[15])) do
    local step = rules[string.sub(lane, 9) + 1][3][1]
    if step and oldest[1] and now - oldest[2] >= step[1] then
      return false
    end
  end
  return oldest[1] and call('zscore', base .. 'x' .. lane, oldest[1])
end

if ready and #ready == 2 and not selected and is_fair(ready[2]) and is_by_turn(KEYS[1], ready[1])
    and claim_by_turn(KEYS[1], ready[1], ARGV[14]) then
  write_news()
  return answer
end
