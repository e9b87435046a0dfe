-- Put in front of the scripts that go by the time. The only place where a script learns it.

-- The server's clock, in microseconds.
local function clock()
  local parts = redis.call('time')
  return parts[1] * 1000000 + parts[2]
end

-- The moment that a caller gives, or now if that is ''.
local function moment(word)
  return word == '' and clock() or tonumber(word)
end
