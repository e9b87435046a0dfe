-- Have the claims of queues that have limits or concurrency keys take turns, until the transaction ends.
--
-- $1 text    the schema, so that two stores in one database do not wait for each other
-- $2 text[]  queues, sorted
--
-- Returns nothing of use.
SELECT pg_advisory_xact_lock(hashtext('fairlead claim ' || $1::text), hashtext(q.queue))
FROM unnest($2::text[]) AS q (queue)
