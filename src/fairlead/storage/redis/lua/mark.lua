-- Have a slot, or the store, bear a mark.
--
-- KEYS[1]  where the mark is
-- ARGV[1]  the mark     ARGV[2]  what is borne now, or '' for none
--
-- Returns 1 when it bears the mark now, else 0.

local borne = redis.call('get', KEYS[1]) or ''
if borne == ARGV[2] then
  redis.call('set', KEYS[1], ARGV[1])
  borne = ARGV[1]
end
return borne == ARGV[1] and 1 or 0
