-- Put in front of the scripts that add, remove or move tasks: how large things may get.

local call = redis.call
local ID = 16 -- bytes
local BUCKET = 64 -- ids per bucket, at most
local FILL = 56 -- ids left in a bucket that ids are appended to, so that late ones still find room
local RINGS = 64 -- rings kept in a doorbell
local RING_LIFE = 60000 -- milliseconds
