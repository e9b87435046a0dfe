-- Let the keys of a queue come to the front that may go on by now: for claims whose queues are on several servers.
--
-- KEYS[1]  the slot's base
-- ARGV[1]  now, or '' for the server's clock      ARGV[2]  the queue's name
-- ARGV[3]  its limits (msgpack, see limits.lua)      ARGV[4]  the limit of each key packed by itself
--
-- Returns 1.

look(limits_of(KEYS[1], ARGV[2], ARGV[3], ARGV[4], 0), moment(ARGV[1]))
write_news()
return 1
