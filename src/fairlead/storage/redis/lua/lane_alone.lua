-- Put in front of claim.lua, behind held.lua: the claim from one queue that has one lane, as most have, in a straight line.
-- To define all that is behind it takes as long as what is done here.

ready = #KEYS == 2 and call('hgetall', KEYS[1] .. 'q' .. ARGV[14])
if ready and #ready == 0 then
  return answer
elseif ready and #ready == 2 and not selected then
  local kind, slot = cmsgpack.unpack(ready[2]), { base = KEYS[1], added = {}, removed = {} }
  if not may_take(kind) then
    return answer
  elseif not kind[4] then
    local lane = {
      queue = { base = KEYS[1], name = ARGV[14], slot = slot }, key = KEYS[1] .. 'l' .. ready[1], name = ready[1],
      gone = 0, moved = 0,
    }
    ids = call('zrange', lane.key, 0, limit - 1)
    number = #ids
    for at = 1, number do
      lanes[at] = lane
    end
    hold_all({ slot })
    write_news()
    return answer
  end
end
