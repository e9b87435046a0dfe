-- Put in front of the scripts that count what tasks wait for: where those counts are in a task's value.

-- Where in a value the counts begin and end, and both counts. `rest` is where the first twelve fields of the status end.
-- A task that waits has no result, so all in front of them can be read; behind them may be fields of later versions.
local function counts_in(value, rest)
  local start = cmsgpack.unpack_limit(value, 8, rest) -- ended_at to history
  local stop, pending, unmet = cmsgpack.unpack_limit(value, 2, start)
  return start, stop < 0 and #value or stop, pending, unmet
end
