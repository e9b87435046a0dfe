-- Remember members of a set by which claims select lanes: '+' and a type that the worker knows, '-' and one that is not
-- to be taken, and at the very end '!'.
--
-- KEYS[1]  the set
-- ARGV[1]  for how many milliseconds it is kept
-- ARGV     members
--
-- Returns 1.

redis.call('sadd', KEYS[1], unpack(ARGV, 2))
redis.call('pexpire', KEYS[1], ARGV[1])
return 1
