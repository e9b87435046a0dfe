-- Take out notes of one slot that the journal has; a task that has changed since stays noted.
--
-- KEYS[1]  the slot's base
-- ARGV     per note: its member of the outbox, the version that the journal has
--
-- Returns how many were taken out.

local base, gone = KEYS[1], {}
for at = 1, #ARGV, 2 do
  local member = ARGV[at]
  local value = #member == 16 and call('get', base .. 't' .. member)
  if value then
    local is_task, _, start = pcall(cmsgpack.unpack_one, value, 1)
    local is_sound, status = pcall(status_at, value, start)
    if is_task and is_sound and status.version == tonumber(ARGV[at + 1]) then
      gone[#gone + 1] = member
    end
  else
    gone[#gone + 1] = member
  end
end
write('zrem', base .. 'o', gone)
return #gone
