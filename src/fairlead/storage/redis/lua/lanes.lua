-- Put in front of the scripts that claim: their common arguments (see claim.lua), which lanes they may take from, and how
-- the heads of lanes are compared.

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

local function admits(kind)
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

-- Let a lane's head be the next one it has; heads are fetched a few at a time, as they are needed.
local function advance(lane)
  lane.at = lane.at + 2
  if lane.at > #lane.heads then
    lane.heads = call('zrange', lane.key, lane.taken, lane.taken + lane.fetch - 1, 'withscores')
    lane.fetch = math.min(2 * lane.fetch, limit)
    lane.at = 1
  end
  lane.id = lane.heads[lane.at]
  lane.ready_at = tonumber(lane.heads[lane.at + 1])
end

local function judge(line, turn)
  local rule = line.tables[turn % #line.tables + 1][line.priority + 1]
  local rank, waited = rule[1], now - line.head.ready_at
  for _, step in ipairs(rule[3]) do
    if waited < step[1] then
      break
    end
    rank = step[2]
  end
  line.rank = rank
  line.mark = line.head.ready_at - rule[2]
end
