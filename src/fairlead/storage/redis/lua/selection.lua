-- Put in front of the scripts that claim: their common arguments (see claim.lua), and which lanes they may take from.

local now, grace, limit = moment(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4])
local till = now + tonumber(ARGV[2])
local first_turn, enough, worker, token = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], ARGV[8]

local function set_of(list)
  local set = {}
  for _, member in ipairs(list) do
    set[member] = true
  end
  return set
end

local capabilities = set_of(cmsgpack.unpack(ARGV[9]))
local types = ARGV[10] ~= '' and set_of(cmsgpack.unpack(ARGV[10]))
local excluded = set_of(cmsgpack.unpack(ARGV[11]))
-- What is too much to be sent with each claim is a set in the first queue's slot, by the name of the selection.
local selected = ARGV[13] ~= '' and KEYS[1] .. 's' .. ARGV[12]
local knows_types = string.find(ARGV[13], '+', 1, true)

-- Take out of a lane the tasks in front that are gone; the lanes of which nothing is left go all at once.
local function take_out(lane, emptied)
  if lane.gone == lane.size then
    emptied[#emptied + 1] = lane.key
  else
    call('zremrangebyrank', lane.key, 0, lane.gone - 1)
  end
end

local function may_take(kind)
  if excluded[kind[2]] or (types and not types[kind[2]]) then
    return false
  end
  for _, capability in ipairs(kind[3]) do
    if not capabilities[capability] then
      return false
    end
  end
  return true
end
