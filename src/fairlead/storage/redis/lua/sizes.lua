-- Put in front of the scripts that add, remove or move tasks: how large things may get.

local call = redis.call
local ID = 16 -- bytes
local BUCKET = 64 -- ids per bucket, at most
local RINGS = 64 -- rings kept in a doorbell
local RING_LIFE = 60000 -- milliseconds
