-- Who holds an idempotency key.
--
-- KEYS[1]  the slot's base
-- ARGV[1]  the queue, a space and the key
-- ARGV[2]  now, or '' for the server's clock
--
-- Returns the holder's id, or false.

return holder_of(KEYS[1], ARGV[1], function() return moment(ARGV[2]) end) or false
