-- Put in front of the scripts that add, remove or move tasks: how large things may get.

local call = redis.call
local ID = 16 -- bytes
local BUCKET = 64 -- ids per bucket, at most
local FILL = 56 -- ids left in a bucket that ids are appended to, so that late ones still find room
local RINGS = 64 -- rings kept in a doorbell
local RING_LIFE = 60000 -- milliseconds
local FEW = 16 -- lanes of a queue that a claim looks at one by one; of more it has a view
local LOGGED = 8192 -- entries of a queue's log of heads, or a few more
