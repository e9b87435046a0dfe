-- Put in front of the scripts that look at the order of ids.

local number_in = struct.unpack

-- Whether one id sorts before another. Lua's own < follows the server's locale.
local function before(one, other)
  local left, left_next = number_in('>I6I6', one)
  local right, right_next = number_in('>I6I6', other)
  if left == right then
    left, right = left_next, right_next
    if left == right then
      left, right = number_in('>I4', one, 13), number_in('>I4', other, 13)
    end
  end
  return left < right
end
