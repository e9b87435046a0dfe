-- Cut leases that would end later than a lease's length from now, in one slot.
--
-- KEYS[1]  the slot's base
-- ARGV[1]  now, or '' for the server's clock      ARGV[2]  the length      ARGV[3]  how many at most
--
-- Returns how many were cut: not those whose status has the mark of a newer format, which this version leaves alone.

local base, last = KEYS[1], moment(ARGV[1]) + tonumber(ARGV[2])
local late = call('zrevrangebyscore', base .. 'e', '+inf', '(' .. text_of(last), 'limit', 0, ARGV[3])
local cut = 0

local function is_newer(value)
  local read, _, at = pcall(cmsgpack.unpack_one, value, 1)
  return read and type(at) == 'number' and string.byte(value, at + 1) == 0xC1
end

for _, id in ipairs(late) do
  local key = base .. 't' .. id
  local value = call('get', key)
  if value then
    local is_task, at, _, _, status = pcall(standing, base, value)
    if is_task and status.lease then
      status.lease[3], status.alarm = last, last
      call('set', key, rewritten(value, at, status))
    end
  end
  if not (value and is_newer(value)) then
    put(adds, base .. 'e', text_of(last), id)
    cut = cut + 1
  end
end
flush(base)
return cut
