-- Put in front of the scripts that look for the holder of an idempotency key, behind sizes.lua.

-- The holder of a key, if it is held at the moment that `now` says, which is asked only if somebody has held it.
local function holder_of(base, name, now)
  local held = call('get', base .. 'y' .. name)
  if not held then
    return nil
  end
  local holder = tonumber(string.sub(held, 17)) > now() and string.sub(held, 1, 16)
  -- One that was set aside may not have said which key it held.
  return holder and call('exists', base .. 't' .. holder) == 1 and holder or nil
end
